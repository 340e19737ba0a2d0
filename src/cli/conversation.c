#include "cli/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "cli/messages.h"
#include "cli/print/json.h"

static const char *const roles[] = {"system", "user", "assistant"};

static const char *find_role(const char *name)
{
    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(name, roles[i]) == 0) {
            return roles[i];
        }
    }
    return NULL;
}

void cli_conversation_close(cli_conversation *c)
{
    cli_conversation_forget(c, 0);
    free(c->messages);
    cli_images_close(&c->images);
    *c = (cli_conversation){0};
}

bool cli_conversation_say(cli_conversation *c, const char *role, const char *content)
{
    if (!mo_array_reserve(&c->messages, &c->space, c->count + 1, sizeof *c->messages)) {
        return false;
    }
    char *copy = strdup(content);
    if (copy) {
        c->messages[c->count++] = (cli_message){.role = find_role(role), .content = copy};
    }
    return copy != NULL; /* cppcheck-suppress memleak ; the list owns it */
}

bool cli_conversation_attach(cli_conversation *c, cli_images *images)
{
    const int count = images->count;
    if (count == 0) {
        return true;
    }
    if (!cli_images_move(images, 0, &c->images)) {
        return false;
    }
    c->messages[c->count - 1].pictures = count;
    return true;
}

void cli_conversation_take_back(cli_conversation *c, cli_images *images)
{
    cli_message *last = &c->messages[c->count - 1];
    if (last->pictures && cli_images_move(&c->images, c->images.count - last->pictures, images)) {
        last->pictures = 0;
    }
    cli_conversation_forget(c, c->count - 1);
}

size_t cli_conversation_fixed(const cli_conversation *c)
{
    return c->count > 0 && strcmp(c->messages[0].role, "system") == 0 ? 1 : 0;
}

bool cli_conversation_set_system(cli_conversation *c, const char *content)
{
    const size_t fixed = cli_conversation_fixed(c);
    if (!cli_conversation_say(c, "system", content)) { /* added at the end, then moved to the front */
        return false;
    }
    const cli_message said = c->messages[--c->count];
    if (fixed) {
        free(c->messages[0].content);
        c->count--;
        memmove(c->messages, c->messages + 1, sizeof *c->messages * c->count);
    }
    if (content[0]) {
        memmove(c->messages + 1, c->messages, sizeof *c->messages * c->count);
        c->count++;
        c->messages[0] = said;
    } else {
        free(said.content);
    }
    return true;
}

void cli_conversation_forget(cli_conversation *c, size_t from)
{
    while (c->count > from) {
        const cli_message *last = &c->messages[--c->count];
        cli_images_remove(&c->images, c->images.count - last->pictures, last->pictures);
        free(last->content);
    }
}

/* The first question from message i on, or count. */
static size_t next_question(const cli_conversation *c, size_t i)
{
    while (i < c->count && strcmp(c->messages[i].role, "user") != 0) {
        i++;
    }
    return i;
}

bool cli_conversation_undo(cli_conversation *c)
{
    size_t last = c->count;
    for (size_t i = next_question(c, 0); i < c->count; i = next_question(c, i + 1)) {
        last = i;
    }
    const bool found = last < c->count;
    cli_conversation_forget(c, last);
    return found;
}

bool cli_conversation_drop(cli_conversation *c)
{
    const size_t first = cli_conversation_fixed(c), second = next_question(c, next_question(c, first) + 1);
    if (second >= c->count) {
        return false;
    }
    for (size_t i = first; i < second; i++) {
        cli_images_remove(&c->images, 0, c->messages[i].pictures);
        free(c->messages[i].content);
    }
    memmove(c->messages + first, c->messages + second, sizeof *c->messages * (c->count - second));
    c->count -= second - first;
    return true;
}

static bool add_part(json_t *parts, json_t *part)
{
    return part && json_array_append_new(parts, part) == 0;
}

/* A text and pictures as content parts. NULL when out of memory. */
static json_t *parts_json(const char *content)
{
    json_t *parts = json_array();
    bool ok = parts != NULL;
    for (const char *mark; ok && *content; content = mark ? mark + strlen(MO_IMAGE_MARK) : "") {
        mark = strstr(content, MO_IMAGE_MARK);
        const size_t length = mark ? (size_t)(mark - content) : strlen(content);
        if (length) {
            ok = add_part(parts,
                          json_pack("{s:s, s:o}", "type", "text", "text", cli_json_text(content, length)));
        }
        if (mark) {
            ok = ok && add_part(parts, json_pack("{s:s}", "type", "image"));
        }
    }
    if (!ok) {
        json_decref(parts);
    }
    return ok ? parts : NULL;
}

json_t *cli_conversation_json(const cli_conversation *c)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < c->count; i++) {
        const bool parts = c->messages[i].pictures > 0;
        json_t *content =
            parts ? parts_json(c->messages[i].content) : cli_json_string(c->messages[i].content);
        json_t *message =
            content ? json_pack("{s:s, s:o}", "role", c->messages[i].role, "content", content) : NULL;
        if (!message || json_array_append_new(array, message) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* A copy of the prompt's tokens, which the caller owns. */
static int32_t *copy_tokens(const mo_prompt *prompt, size_t *count)
{
    const int32_t *tokens = mo_prompt_tokens(prompt, count);
    int32_t *copy = malloc((*count ? *count : 1) * sizeof *copy);
    if (copy && *count) {
        memcpy(copy, tokens, *count * sizeof *copy);
    }
    return copy;
}

int32_t *cli_conversation_tokens(const cli_conversation *c, const char *command, const mo_model *model,
                                 mo_thinking thinking, size_t *count)
{
    mo_error err = {MO_ENOMEM, "out of memory"};
    mo_prompt *prompt = NULL;
    mo_chat_options options = mo_chat_options_default();
    options.thinking = thinking;
    json_t *list = cli_conversation_json(c);
    char *json = list ? mo_json_dump(list, JSON_COMPACT) : NULL;
    json_decref(list);
    if (json) {
        mo_prompt_open(model, json, strlen(json), &options, &prompt, &err);
    }
    free(json);
    int32_t *ids = prompt ? copy_tokens(prompt, count) : NULL;
    mo_prompt_close(prompt);
    if (!ids) {
        cli_say_error(command, &err);
    } else if (c->images.count) {
        int32_t *placed = cli_images_place(&c->images, ids, count);
        free(ids);
        ids = placed;
    }
    return ids;
}

bool cli_conversation_read(cli_conversation *c, const json_t *array)
{
    cli_conversation read = {0};
    bool ok = json_is_array(array);
    for (size_t i = 0; ok && i < json_array_size(array); i++) {
        const json_t *message = json_array_get(array, i);
        const char *role = find_role(json_string_value(json_object_get(message, "role")));
        const char *content = json_string_value(json_object_get(message, "content"));
        ok = role && content && cli_conversation_say(&read, role, content);
    }
    if (!ok) {
        cli_conversation_close(&read);
        return false;
    }
    cli_conversation_close(c);
    *c = read;
    return true;
}
