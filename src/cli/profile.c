#include "cli/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/infile.h"
#include "cli/messages.h"
#include "cli/print/terminal.h"

/* May the file be written: is it missing, or a profile in our format? */
static bool is_ours(const char *path)
{
    static const char begin[] = "{\"enabled\":";
    char found[sizeof begin - 1];
    struct stat st;
    if (stat(path, &st) != 0) {
        return errno == ENOENT;
    }
    const int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    const bool ours = fd >= 0 && read(fd, found, sizeof found) == (ssize_t)sizeof found &&
                      memcmp(found, begin, sizeof found) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return ours;
}

static void show_in(const char *json, const char *path)
{
    if (!is_ours(path)) {
        fprintf(stderr, "moraine chat: %s exists and is not a profile; name another file or remove it\n",
                path);
        return;
    }
    FILE *f = fopen(path, "w");
    bool good = f && fprintf(f, "%s\n", json) > 0;
    good = f && fclose(f) == 0 && good;
    if (good) {
        fprintf(stderr, "written to %s\n", path);
    } else {
        perror(path);
    }
}

/* ---- The table ---- */

enum { HOTTEST = 5 };

static json_int_t number_at(const json_t *pair, size_t index)
{
    return json_integer_value(json_array_get(pair, index));
}

/* "12 (8 %), 40 (7 %), ...": the experts with the most picks in a list of pairs. */
static void hottest(const json_t *experts, json_int_t picks, char *text, size_t size)
{
    const size_t count = json_array_size(experts);
    json_int_t last_picks = INT64_MAX, last_id = -1;
    size_t used = 0;
    text[0] = '\0';
    for (int n = 0; n < HOTTEST && used < size; n++) {
        const json_t *best = NULL;
        for (size_t i = 0; i < count; i++) { /* the next by picks, then by number */
            const json_t *pair = json_array_get(experts, i);
            const json_int_t id = number_at(pair, 0), own = number_at(pair, 1);
            const bool after = own < last_picks || (own == last_picks && id > last_id);
            if (own > 0 && after && (!best || own > number_at(best, 1))) {
                best = pair;
            }
        }
        if (!best) {
            break;
        }
        last_id = number_at(best, 0);
        last_picks = number_at(best, 1);
        used += (size_t)snprintf(text + used, size - used, "%s%lld (%.0f %%)", n ? ", " : "",
                                 (long long)last_id, 100.0 * (double)last_picks / (double)picks);
    }
}

static void print_layer(const json_t *layer, json_int_t expert_count)
{
    char used[32], hits[32], hot[256];
    const json_t *experts = json_object_get(layer, "experts");
    const json_int_t held = json_integer_value(json_object_get(layer, "hot_slots_total"));
    const json_int_t picks = held + json_integer_value(json_object_get(layer, "cold_slots_total"));
    hottest(experts, picks, hot, sizeof hot);
    snprintf(used, sizeof used, "%zu of %lld", json_array_size(experts), (long long)expert_count);
    snprintf(hits, sizeof hits, "%.1f %%", picks ? 100.0 * (double)held / (double)picks : 0.0);
    printf("%5lld  %8lld  %8s  %12s  %s\n", (long long)json_integer_value(json_object_get(layer, "layer")),
           (long long)picks, picks ? hits : "-", used, hot);
}

static void print_table(const char *json)
{
    json_t *root = json_loads(json, 0, NULL);
    const json_t *layers = json_object_get(root, "layers");
    const json_int_t experts = json_integer_value(json_object_get(root, "n_expert"));
    if (!json_is_true(json_object_get(root, "enabled"))) {
        fprintf(stderr, "expert usage is not counted: LLAMA_MOE_LAYER_PERF is off\n");
    } else if (json_array_size(layers) == 0) {
        fprintf(stderr, "no expert usage yet, or the model has no routed experts\n");
    } else {
        printf("%s%5s  %8s  %8s  %12s  %s%s\n", cli_terminal_bold(), "layer", "picks", "hits", "experts used",
               "hottest experts", cli_terminal_plain());
        for (size_t i = 0; i < json_array_size(layers); i++) {
            print_layer(json_array_get(layers, i), experts);
        }
        fflush(stdout);
        fprintf(stderr,
                "Hits were in fast memory when a router chose them. /profile FILE writes all counts.\n");
    }
    json_decref(root);
}

void cli_profile_show(mo_model *model, const char *path)
{
    mo_error err;
    char *json = NULL;
    if (mo_model_profile(model, &json, &err) != MO_OK) {
        cli_say_error("chat", &err);
    } else if (path) {
        show_in(json, path);
    } else if (cli_terminal_is(stdout)) {
        print_table(json);
    } else {
        printf("%s\n", json);
    }
    free(json);
}

void cli_profile_apply(mo_model *model, const char *path)
{
    mo_error err;
    mo_profile_report a;
    size_t length = 0;
    char *text = cli_read_file("chat", path, &length);
    if (!text) {
        return;
    }
    const mo_status status = mo_model_profile_apply(model, text, length, &a, sizeof a, &err);
    if (status != MO_OK) {
        cli_name_options(err.detail, sizeof err.detail);
        fprintf(stderr, "moraine chat: %s: %s\n", path, err.detail);
    }
    if (status == MO_OK || a.active) {
        printf("{\"success\":%s,\"active\":%s,\"update_rate\":%.1f,\"exchanged\":%" PRIu64
               ",\"candidates\":%" PRIu64 ",\"max_exchange\":%" PRIu64 ",\"hot_experts\":%" PRIu64
               ",\"layers_changed\":%" PRIu64 "}\n",
               a.success ? "true" : "false", a.active ? "true" : "false", a.update_rate, a.exchanged,
               a.candidates, a.max_exchange, a.hot_experts, a.layers_changed);
    }
    free(text);
}
