/* Calls: names are checked, ids are drawn. */
#include "dialogue/calls.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "dialogue/json.h"

bool mo_calls_name_fits(const mo_calls *c, mo_text name, bool known)
{
    if (name.length == 0 || name.length > MO_TOOL_NAME) {
        return false;
    }
    if (c->tools && mo_tools_find(c->tools, name.data, name.length) >= 0) {
        return true;
    }
    for (size_t i = 0; i < name.length; i++) {
        if ((unsigned char)name.data[i] <= ' ' || mo_json_among(name.data[i], "\"<>{}()[]|\\'`,;")) {
            return false;
        }
    }
    return !known;
}

/* Unguessable letters and digits. Without the kernel's random numbers at least no two are alike. */
static void draw(char *to, size_t n)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    static uint64_t drawn;
    uint8_t random[32];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        uint64_t x = (uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec ^
                     __atomic_add_fetch(&drawn, 1, __ATOMIC_RELAXED) << 40;
        for (size_t i = 0; i < sizeof random; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            random[i] = (uint8_t)(x >> 56);
        }
    }
    for (size_t i = 0; i < n; i++) {
        to[i] = letters[random[i] % (sizeof letters - 1)];
    }
    to[n] = 0;
}

static size_t make_id(const mo_calls *c, mo_text name, char *to, size_t space)
{
    switch (c->style->ids) {
    case MO_CALL_ID_NINE: draw(to, 9); break;
    case MO_CALL_ID_KIMI:
        snprintf(to, space, "functions.%.*s:%d", (int)name.length, name.data, c->count);
        break;
    default: draw(to + snprintf(to, space, "call_"), 24);
    }
    return strlen(to);
}

void mo_calls_begin(mo_calls *c, mo_text name, mo_text id)
{
    char own[MO_TOOL_NAME + 32];
    mo_calls_end(c);
    if (id.length == 0) {
        id = (mo_text){own, make_id(c, name, own, sizeof own)};
    }
    mo_piece_list_mark(c->out, MO_PIECE_CALL, c->count, name, id);
    c->function = c->tools ? mo_tools_find(c->tools, name.data, name.length) : -1;
    c->count++;
    c->open = true;
    c->arguments = false;
}

void mo_calls_arguments(mo_calls *c, mo_text json)
{
    if (c->open && json.length > 0) {
        c->arguments = true;
        mo_piece_list_add(c->out, MO_PIECE_ARGUMENTS, c->count - 1, json);
    }
}

void mo_calls_cut(mo_calls *c)
{
    if (c->open) {
        mo_piece_list_mark(c->out, MO_PIECE_CALL_END, c->count - 1, (mo_text){"", 0}, (mo_text){"", 0});
        c->open = false;
    }
}

void mo_calls_end(mo_calls *c)
{
    if (c->open && !c->arguments) {
        mo_calls_arguments(c, (mo_text){"{}", 2});
    }
    mo_calls_cut(c);
}
