/* Token replay: see token_replay.h. */
#include "server/requests/token_replay.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"

enum { ENTRIES = 8192, ID = 64 };

typedef struct call_entry {
    uint64_t conversation;
    char id[ID];
} call_entry;

struct srv_call_index {
    pthread_mutex_t lock;
    call_entry entries[ENTRIES]; /* used in turn */
    uint64_t count;              /* ever added */
};

srv_call_index *srv_call_index_open(void)
{
    srv_call_index *t = calloc(1, sizeof *t);
    if (t) {
        pthread_mutex_init(&t->lock, NULL);
    }
    return t;
}

void srv_call_index_close(srv_call_index *t)
{
    if (t) {
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
}

void srv_call_index_add(srv_call_index *t, const char *call_id, uint64_t conversation)
{
    const size_t length = strlen(call_id);
    if (length >= ID) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    call_entry *entry = &t->entries[t->count++ % ENTRIES];
    entry->conversation = conversation;
    memcpy(entry->id, call_id, length + 1);
    pthread_mutex_unlock(&t->lock);
}

bool srv_call_index_has(srv_call_index *t, const char *call_id, uint64_t conversation)
{
    bool known = false;
    pthread_mutex_lock(&t->lock);
    const uint64_t first = t->count > ENTRIES ? t->count - ENTRIES : 0;
    for (uint64_t i = t->count; i-- > first && !known;) {
        const call_entry *entry = &t->entries[i % ENTRIES];
        known = entry->conversation == conversation && strcmp(entry->id, call_id) == 0;
    }
    pthread_mutex_unlock(&t->lock);
    return known;
}

enum { TRIES = 4 }; /* messages with calls that are looked at, from the last on */

/* ---- Numbers of conversations ---- */

static uint64_t mix_json(uint64_t h, const json_t *value)
{
    char *text = value ? mo_json_dump(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    h = mo_hash_text(h, text ? text : "", text ? strlen(text) : 0);
    free(text);
    return h;
}

/* A message without its thought, which clients may send back or not; null says the same as nothing. */
static uint64_t mix_message(uint64_t h, const json_t *message)
{
    const char *key;
    json_t *value;
    uint64_t sum = 0; /* in any order */
    json_object_foreach((json_t *)message, key, value)
    {
        const bool empty = json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0);
        if (strcmp(key, "reasoning_content") != 0 && !empty) {
            sum += mix_json(mo_hash_text(MO_HASH_SEED, key, strlen(key)), value);
        }
    }
    return mo_hash_text(h, (const char *)&sum, sizeof sum);
}

/* What decides how messages are rendered, apart from themselves. */
static uint64_t settings(const srv_token_replay *r)
{
    const srv_parameters *p = r->parameters;
    const char *const texts[] = {r->model_id, r->tools_text, p->effort, r->kwargs};
    uint64_t h = MO_HASH_SEED + (uint64_t)p->thinking;
    h = mo_hash(h, &r->owner, sizeof r->owner);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        h = mo_hash_text(h, texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) : 0);
    }
    return mix_json(h, p->template_kwargs);
}

uint64_t srv_token_replay_number(const srv_token_replay *r)
{
    uint64_t h = settings(r);
    size_t i;
    json_t *message;
    json_array_foreach(r->conversation->messages, i, message)
    {
        h = mix_message(h, message);
    }
    return h;
}

/* ---- Is the message what the model wrote? ---- */

typedef struct said {
    srv_writer text, thought;
    json_t *calls; /* [[name, arguments]...] */
    bool failed;
} said;

static void said_free(said *s)
{
    srv_writer_free(&s->text);
    srv_writer_free(&s->thought);
    json_decref(s->calls);
}

static void take_pieces(said *s, const mo_piece *pieces, size_t count, srv_writer *arguments)
{
    for (size_t i = 0; i < count; i++) {
        const mo_piece *p = &pieces[i];
        switch (p->kind) {
        case MO_PIECE_TEXT: srv_put(&s->text, p->text.data, p->text.length); break;
        case MO_PIECE_THOUGHT: srv_put(&s->thought, p->text.data, p->text.length); break;
        case MO_PIECE_CALL:
            srv_writer_empty(arguments);
            s->failed |=
                json_array_append_new(s->calls, json_pack("[s#]", p->text.data, (int)p->text.length));
            break;
        case MO_PIECE_ARGUMENTS: srv_put(arguments, p->text.data, p->text.length); break;
        case MO_PIECE_CALL_END: {
            json_t *call = json_array_get(s->calls, json_array_size(s->calls) - 1);
            s->failed |= json_array_append_new(
                call, json_stringn(arguments->data ? arguments->data : "", arguments->length));
            break;
        }
        }
    }
}

/* An answer taken apart once more. */
static bool listen(const srv_token_replay *r, const int32_t *tokens, size_t count, size_t prompt, said *out)
{
    const mo_model *model = r->model;
    mo_reply_options o = mo_reply_options_default();
    mo_reply *reply = NULL;
    srv_writer arguments = {0};
    const mo_piece *pieces;
    size_t n;
    o.in_thought = mo_model_in_thought(model, tokens, prompt);
    o.keep_thought = r->parameters->keep_thought;
    o.single = r->tools->single;
    o.tools = r->tools_text;
    o.tools_length = r->tools_text ? strlen(r->tools_text) : 0;
    out->calls = json_array();
    if (!out->calls || mo_reply_open(model, &o, &reply, NULL) != MO_OK) {
        return false;
    }
    bool good = true;
    for (size_t i = prompt; i < count && good; i++) {
        if (!mo_token_ends(model, tokens[i])) {
            good = mo_reply_put(reply, tokens[i], &pieces, &n, NULL) == MO_OK;
            take_pieces(out, pieces, good ? n : 0, &arguments);
        }
    }
    good = good && mo_reply_flush(reply, &pieces, &n, NULL) == MO_OK;
    take_pieces(out, pieces, good ? n : 0, &arguments);
    mo_reply_close(reply);
    good = good && !out->failed && !arguments.failed && !out->text.failed && !out->thought.failed;
    srv_writer_free(&arguments);
    return good;
}

static mo_text trimmed(mo_text t)
{
    while (t.length > 0 && strchr(" \n\r\t", t.data[t.length - 1])) {
        t.length--;
    }
    while (t.length > 0 && strchr(" \n\r\t", t.data[0])) {
        t.data++;
        t.length--;
    }
    return t;
}

static bool same_text(mo_text a, mo_text b)
{
    a = trimmed(a);
    b = trimmed(b);
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static mo_text text_of(const json_t *string)
{
    return json_is_string(string) ? (mo_text){json_string_value(string), json_string_length(string)}
                                  : (mo_text){"", 0};
}

/* Arguments may be written in another way, as long as they say the same. */
static bool same_arguments(const json_t *sent, const json_t *written)
{
    const mo_text text = text_of(written);
    json_t *ours = json_loadb(text.data, text.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_t *theirs = json_is_string(sent) ? json_loads(json_string_value(sent), JSON_DECODE_ANY, NULL)
                                          : json_incref((json_t *)sent);
    const bool same =
        ours && theirs ? json_equal(ours, theirs) : json_is_string(sent) && same_text(text_of(sent), text);
    json_decref(ours);
    json_decref(theirs);
    return same;
}

static bool same_message(const json_t *message, const said *s)
{
    const json_t *calls = json_object_get(message, "tool_calls"),
                 *content = json_object_get(message, "content");
    const mo_text thought = text_of(json_object_get(message, "reasoning_content"));
    if (json_is_array(content) || json_array_size(calls) != json_array_size(s->calls) ||
        !same_text(text_of(content), (mo_text){s->text.data ? s->text.data : "", s->text.length}) ||
        (thought.length > 0 &&
         !same_text(thought, (mo_text){s->thought.data ? s->thought.data : "", s->thought.length}))) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *written = json_array_get(s->calls, i);
        if (!json_equal(json_object_get(function, "name"), json_array_get(written, 0)) ||
            !same_arguments(json_object_get(function, "arguments"), json_array_get(written, 1))) {
            return false;
        }
    }
    return true;
}

/* ---- What follows it ---- */

/* Renders the messages up to `end`, those up to `plain` without their thoughts. */
static bool render(const srv_token_replay *r, size_t plain, size_t end, srv_rendering *out)
{
    const json_t *all = r->conversation->messages;
    srv_conversation part = *r->conversation;
    srv_fault fault = {0};
    part.messages = json_array();
    part.whole = end < json_array_size(all) || part.whole;
    bool good = part.messages != NULL;
    for (size_t i = 0; i < end && good; i++) {
        json_t *message = json_array_get(all, i);
        json_t *copy = i < plain && json_object_get(message, "reasoning_content") ? json_copy(message)
                                                                                  : json_incref(message);
        if (copy && copy != message) {
            json_object_del(copy, "reasoning_content");
        }
        good = json_array_append_new(part.messages, copy) == 0;
    }
    good = good && srv_rendering_make(r->model, &part, r->tools, r->parameters, r->kwargs, out, &fault);
    json_decref(part.messages);
    return good;
}

/* Where a template's end of the message's turn begins in its rendering: an end token, with only white space behind it. Where the
 * template has none, the rendering's end. */
static size_t end_of_turn(const mo_model *model, const srv_tokens *t)
{
    size_t at = t->count;
    while (at > 0 && t->count - at < 4) {
        at--;
        if (mo_token_ends(model, t->ids[at])) {
            return at;
        }
        const mo_text bytes = mo_token_bytes(model, t->ids[at]);
        if (trimmed(bytes).length > 0) {
            break;
        }
    }
    return t->count;
}

/* The tokens that are known, and the rest of the rendering. */
static bool put_together(const srv_token_replay *r, const int32_t *known, size_t count, size_t message,
                         srv_rendering *rendered)
{
    const mo_model *model = r->model;
    srv_rendering turn = {0}, whole = {0};
    bool good = render(r, message + 1, message + 1, &turn) &&
                render(r, message + 1, json_array_size(r->conversation->messages), &whole);
    good = good && whole.tokens.count > turn.tokens.count &&
           memcmp(whole.tokens.ids, turn.tokens.ids, turn.tokens.count * sizeof *known) == 0;
    if (good) {
        /* The token that ended the answer is in the rendering again, or else it stays. */
        const size_t from = end_of_turn(model, &turn.tokens), rest = whole.tokens.count - from;
        const bool again = from < turn.tokens.count || whole.tokens.ids[from] == known[count - 1];
        count -= mo_token_ends(model, known[count - 1]) && again;
        int32_t *all = malloc((count + rest) * sizeof *all);
        if (!all || (int64_t)(count + rest) >= r->context) { /* with its thoughts it may be too long */
            free(all);
            good = false;
        } else {
            memcpy(all, known, count * sizeof *all);
            memcpy(all + count, whole.tokens.ids + from, rest * sizeof *all);
            free(rendered->tokens.ids);
            rendered->tokens = (srv_tokens){.ids = all, .count = count + rest};
        }
    }
    srv_rendering_free(&turn);
    srv_rendering_free(&whole);
    return good;
}

/* ---- Recalling ---- */

/* The id of the first call of an assistant's message; NULL: it has none. */
static const char *call_of(const json_t *message)
{
    const json_t *call = json_array_get(json_object_get(message, "tool_calls"), 0);
    return json_string_value(json_object_get(call, "id"));
}

static bool replay_message(const srv_token_replay *r, size_t index, srv_rendering *rendered)
{
    const json_t *message = json_array_get(r->conversation->messages, index);
    int32_t *tokens = NULL;
    size_t count = 0, prompt = 0;
    said s = {0};
    if (!srv_engine_find_call(r->engine, call_of(message), &tokens, &count, &prompt)) {
        return false;
    }
    const bool good = listen(r, tokens, count, prompt, &s) && same_message(message, &s) &&
                      put_together(r, tokens, count, index, rendered);
    said_free(&s);
    mo_free(tokens);
    return good;
}

void srv_token_replay_apply(const srv_token_replay *r, srv_rendering *rendered)
{
    const size_t count = json_array_size(r->conversation->messages);
    uint64_t *numbers =
        r->call_index && r->parameters->cache_prompt ? calloc(count + 1, sizeof *numbers) : NULL;
    if (!numbers) {
        return;
    }
    numbers[0] = settings(r);
    for (size_t i = 0; i < count; i++) {
        numbers[i + 1] = mix_message(numbers[i], json_array_get(r->conversation->messages, i));
    }
    int tries = 0;
    for (size_t i = count; i-- > 0 && tries < TRIES;) {
        const char *id = call_of(json_array_get(r->conversation->messages, i));
        if (!id) {
            continue;
        }
        tries++;
        if (i + 1 < count && srv_call_index_has(r->call_index, id, numbers[i]) &&
            replay_message(r, i, rendered)) {
            break;
        }
    }
    free(numbers);
}
