/* moraine inspect: the contents of a model file, and the bytes that a token reads. */
#include <moraine_server.h>
#include <moraine_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/default_model.h"
#include "cli/messages.h"
#include "cli/model_header.h"
#include "cli/options.h"
#include "cli/print/json.h"
#include "cli/print/terminal.h"

#define SHOWN_ELEMENTS 8 /* of an array, in the table */

/* ---- Tables ---- */

static void heading(const char *text)
{
    printf("\n%s%s%s\n", cli_terminal_bold(), text, cli_terminal_plain());
}

/* Prints at most `columns` columns of UTF-8 text; longer text ends with "...". */
static void print_cut(const char *text, int columns)
{
    if (cli_text_columns(text) <= columns) {
        printf("%s", text);
        return;
    }
    int left = columns > 3 ? columns - 3 : 0;
    size_t end = 0;
    while (text[end]) {
        if (((unsigned char)text[end] & 0xc0) != 0x80 && left-- == 0) {
            break;
        }
        end++;
    }
    printf("%.*s...", (int)end, text);
}

/* A metadata value as text; empty if the key is missing. The caller frees it. */
static char *value_text(const mo_file *file, int64_t index)
{
    size_t size = mo_file_metadata_text(file, index, SHOWN_ELEMENTS, NULL, 0) + 1;
    char *text = malloc(size);
    if (text) {
        mo_file_metadata_text(file, index, SHOWN_ELEMENTS, text, size);
    }
    return text;
}

static char *text_of_key(const mo_file *file, const char *key)
{
    mo_metadata_info info;
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        if (strcmp(info.key, key) == 0) {
            return value_text(file, i);
        }
    }
    return NULL;
}

static void print_text_row(const mo_file *file, const char *label, const char *key)
{
    char *text = text_of_key(file, key); /* escaped, unlike the strings in the summary */
    printf("  %-18s", label);
    print_cut(text ? text : "not given", cli_terminal_width(stdout) - 21);
    putchar('\n');
    free(text);
}

static void print_model(const mo_file *file, const mo_file_info *s)
{
    char a[32], b[32];
    heading("Model");
    print_text_row(file, "name", "general.name");
    if (mo_file_check_type(file, NULL) != MO_OK) {
        print_text_row(file, "type", "general.type");
    }
    print_text_row(file, "architecture", "general.architecture");
    printf("  %-18s%s\n", "parameters", cli_count_text((uint64_t)s->parameters, a));
    if (s->layers) {
        printf("  %-18s%d\n", "layers", s->layers);
    }
    if (s->mtp_layers) {
        printf("  %-18s%d layer%s for multi-token prediction, %s; %s\n",
               s->mtp_layers == 1 ? "MTP head" : "MTP heads", s->mtp_layers, s->mtp_layers == 1 ? "" : "s",
               cli_bytes_text((uint64_t)s->mtp_bytes, a),
               s->mtp_heads ? "it can guess tokens" : "this version cannot run it");
    }
    if (s->experts) {
        printf("  %-18s%d in each of %d layers, %d used per token\n", "experts", s->experts, s->expert_layers,
               s->experts_used);
    }
    if (s->context_length) {
        printf("  %-18s%lld tokens\n", "context", (long long)s->context_length);
    }
    printf("  %-18s%s, %s of it in %lld tensors\n", "size", cli_bytes_text((uint64_t)s->file_bytes, a),
           cli_bytes_text((uint64_t)s->tensor_bytes, b), (long long)s->tensors);
    printf("  %-18sGGUF version %d, %d %s\n", "container", s->version, s->parts,
           s->parts == 1 ? "file" : "files");
}

static void print_encoder(const mo_file *file)
{
    mo_encoder_info e;
    mo_error err;
    char a[32];
    const mo_status status = mo_file_encoder(file, &e, sizeof e, &err);
    if (status == MO_ENOENT) {
        return;
    }
    heading("Encoder of pictures");
    if (status == MO_OK) {
        printf("  %-18s%s\n", "projector", e.projector);
    }
    if (status != MO_OK) {
        printf("  %-18sno: %s\n", "supported", err.detail);
        return;
    }
    printf("  %-18s%d of width %lld with %d heads\n", "layers", e.layers, (long long)e.width, e.heads);
    printf("  %-18s%lld x %lld pixels; %lld x %lld of them make a token\n", "patches", (long long)e.patch,
           (long long)e.patch, (long long)e.merge, (long long)e.merge);
    printf("  %-18s%lld to %lld per picture\n", "tokens", (long long)e.min_tokens, (long long)e.max_tokens);
    printf("  %-18sof width %lld", "for text models", (long long)e.text_width);
    if (e.features) {
        printf(" with DeepStack in %d layers", e.features);
    }
    printf("\n  %-18s%s\n", "in memory", cli_bytes_text((uint64_t)e.weight_bytes, a));
}

static double percent(int64_t part, int64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

static void print_formats(const mo_file_info *s)
{
    char a[32];
    if (s->formats == 0) {
        return;
    }
    printf("\n%s%-10s  %8s  %10s  %7s  %s%s\n", cli_terminal_bold(), "Formats", "tensors", "bytes", "share",
           "bits per weight", cli_terminal_plain());
    for (int i = 0; i < s->formats; i++) {
        const mo_file_format *f = &s->format[i];
        printf("  %-8s  %8lld  %10s  %5.1f %%  %.4g\n", f->type, (long long)f->tensors,
               cli_bytes_text((uint64_t)f->bytes, a), percent(f->bytes, s->tensor_bytes),
               8.0 * (double)f->bytes / (double)f->values);
    }
}

static void print_experts(const mo_file_info *s)
{
    char a[32], b[32];
    if (s->expert_layers == 0) {
        return;
    }
    heading("Experts");
    printf("  %-18s%s", "one expert", cli_bytes_text((uint64_t)s->expert_bytes_min, a));
    if (s->expert_bytes_max != s->expert_bytes_min) {
        printf(" to %s", cli_bytes_text((uint64_t)s->expert_bytes_max, b));
    }
    printf("\n  %-18s%s, %.1f %% of the model\n", "all experts",
           cli_bytes_text((uint64_t)s->expert_bytes_total, a),
           percent(s->expert_bytes_total, s->tensor_bytes));
}

static void print_share(const char *label, int64_t bytes, int64_t total, const char *note)
{
    char a[32];
    printf("  %-18s%10s  %5.1f %%%s\n", label, cli_bytes_text((uint64_t)bytes, a), percent(bytes, total),
           note);
}

static void print_token(const mo_file_info *s)
{
    char a[32];
    if (s->token_bytes == 0) {
        return;
    }
    heading("Read per token");
    if (s->expert_layers) {
        print_share("experts", s->token_expert_bytes, s->token_bytes, "");
    }
    print_share("other weights", s->token_other_bytes, s->token_bytes, "");
    print_share("output matrix", s->token_output_bytes, s->token_bytes,
                s->output_tied ? "  (shared with the embedding)" : "");
    print_share("embedding row", s->token_embedding_bytes, s->token_bytes, "");
    printf("  %-18s%10s\n", "total", cli_bytes_text((uint64_t)s->token_bytes, a));
}

static int print_metadata(const mo_file *file)
{
    mo_metadata_info info;
    char type[64];
    const int width = cli_terminal_width(stdout);
    int widest = 0;
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        int columns = cli_text_columns(info.key);
        widest = columns > widest && columns <= 48 ? columns : widest;
    }
    heading("Metadata");
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        if (info.is_array) {
            snprintf(type, sizeof type, "%s[%llu]", mo_value_type_text(info.type),
                     (unsigned long long)info.count);
        } else {
            snprintf(type, sizeof type, "%s", mo_value_type_text(info.type));
        }
        char *text = value_text(file, i);
        if (!text) {
            fprintf(stderr, "moraine inspect: out of memory for the value of %s\n", info.key);
            return CLI_FAILED;
        }
        int used = 2 + widest + 2 + 14 + 2;
        printf("  %s%*s  %-14s  ", info.key,
               widest - cli_text_columns(info.key) > 0 ? widest - cli_text_columns(info.key) : 0, "", type);
        print_cut(text, width - used - 1 > 40 ? width - used - 1 : 40);
        putchar('\n');
        free(text);
    }
    return CLI_OK;
}

static void print_tensors(const mo_file *file)
{
    mo_tensor_info t;
    int widest = 6;
    for (int64_t i = 0; mo_file_tensor(file, i, &t, sizeof t); i++) {
        int columns = cli_text_columns(t.name);
        widest = columns > widest ? columns : widest;
    }
    const bool parts = mo_file_parts(file) > 1;
    printf("\n%s%-*s  %-7s  %-26s  %12s  %14s%s%s\n", cli_terminal_bold(), widest + 2, "Tensors", "type",
           "sizes", "bytes", "offset", parts ? "  part" : "", cli_terminal_plain());
    for (int64_t i = 0; mo_file_tensor(file, i, &t, sizeof t); i++) {
        char sizes[128] = "";
        int used = 0;
        for (int d = 0; d < t.dims; d++) {
            used += snprintf(sizes + used, sizeof sizes - (size_t)used, "%s%lld", d ? " x " : "",
                             (long long)t.size[d]);
        }
        printf("  %s%*s  %-7s  %-26s  %12lld  %14lld", t.name, widest - cli_text_columns(t.name), "", t.type,
               sizes, (long long)t.bytes, (long long)t.offset);
        if (parts) {
            printf("  %4d", t.part + 1);
        }
        putchar('\n');
    }
}

/* ---- JSON ---- */

static json_t *summary_json(const mo_file_info *s)
{
    return json_pack(
        "{s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:b}",
        "architecture", cli_json_string(s->architecture), "name", cli_json_string(s->name),
        "container_version", s->version, "file_bytes", (json_int_t)s->file_bytes, "tensors",
        (json_int_t)s->tensors, "parameters", (json_int_t)s->parameters, "tensor_bytes",
        (json_int_t)s->tensor_bytes, "context_length", (json_int_t)s->context_length, "layers", s->layers,
        "mtp_layers", s->mtp_layers, "mtp_heads", s->mtp_heads, "mtp_bytes", (json_int_t)s->mtp_bytes,
        "expert_layers", s->expert_layers, "experts", s->experts, "experts_used", s->experts_used,
        "expert_bytes_min", (json_int_t)s->expert_bytes_min, "expert_bytes_max",
        (json_int_t)s->expert_bytes_max, "expert_bytes_total", (json_int_t)s->expert_bytes_total,
        "output_tied", (int)s->output_tied);
}

static json_t *token_json(const mo_file_info *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "experts", (json_int_t)s->token_expert_bytes, "other",
                     (json_int_t)s->token_other_bytes, "output", (json_int_t)s->token_output_bytes,
                     "embedding", (json_int_t)s->token_embedding_bytes, "total", (json_int_t)s->token_bytes);
}

static json_t *formats_json(const mo_file_info *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->formats; i++) {
        const mo_file_format *f = &s->format[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "type", f->type, "tensors",
                                              (json_int_t)f->tensors, "values", (json_int_t)f->values,
                                              "bytes", (json_int_t)f->bytes));
    }
    return list;
}

static json_t *parts_json(const cli_model_header *h, const mo_file *file)
{
    json_t *list = json_array();
    for (int i = 0; i < mo_file_parts(file); i++) {
        const char *path = mo_file_part_path(file, i);
        json_array_append_new(list, cli_json_string(strcmp(path, h->path) == 0 ? h->name : path));
    }
    return list;
}

/* A list, because keys may be invalid UTF-8 and collide as member names. */
static json_t *metadata_json(const mo_file *file)
{
    json_t *list = json_array();
    mo_metadata_info info;
    for (int64_t i = 0; mo_file_metadata(file, i, &info, sizeof info); i++) {
        mo_value v;
        json_t *value = info.is_array ? json_array() : NULL;
        for (uint64_t e = 0; mo_file_metadata_value(file, i, e, &v); e++) {
            if (info.is_array) {
                json_array_append_new(value, cli_json_value(&v));
            } else {
                value = cli_json_value(&v);
            }
        }
        json_array_append_new(list, json_pack("{s:o, s:s, s:b, s:o}", "key", cli_json_string(info.key),
                                              "type", mo_value_type_text(info.type), "array",
                                              (int)info.is_array, "value", value));
    }
    return list;
}

static json_t *tensors_json(const mo_file *file)
{
    json_t *list = json_array();
    mo_tensor_info t;
    for (int64_t i = 0; mo_file_tensor(file, i, &t, sizeof t); i++) {
        json_t *sizes = json_array();
        for (int d = 0; d < t.dims; d++) {
            json_array_append_new(sizes, json_integer(t.size[d]));
        }
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:I, s:I, s:i}", "name", cli_json_string(t.name),
                                        "type", t.type, "size", sizes, "bytes", (json_int_t)t.bytes, "offset",
                                        (json_int_t)t.offset, "part", t.part));
    }
    return list;
}

/* For a clip file; otherwise NULL. */
static json_t *encoder_json(const mo_file *file)
{
    mo_encoder_info e;
    mo_error err;
    const mo_status status = mo_file_encoder(file, &e, sizeof e, &err);
    if (status == MO_ENOENT) {
        return NULL;
    }
    if (status != MO_OK) {
        return json_pack("{s:b, s:o}", "supported", 0, "error", cli_json_string(err.detail));
    }
    return json_pack("{s:b, s:o, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:I}", "supported", 1,
                     "projector", cli_json_string(e.projector), "layers", e.layers, "heads", e.heads, "width",
                     (json_int_t)e.width, "patch", (json_int_t)e.patch, "merge", (json_int_t)e.merge,
                     "min_tokens", (json_int_t)e.min_tokens, "max_tokens", (json_int_t)e.max_tokens,
                     "text_width", (json_int_t)e.text_width, "deepstack_layers", e.features, "weight_bytes",
                     (json_int_t)e.weight_bytes);
}

static int print_json(const cli_model_header *h, const mo_file *file, const mo_file_info *s)
{
    json_t *all = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "parts", parts_json(h, file), "summary",
                            summary_json(s), "token_bytes", token_json(s), "formats", formats_json(s),
                            "metadata", metadata_json(file), "tensors", tensors_json(file));
    json_t *encoder = encoder_json(file);
    if (encoder) {
        json_object_set_new(all, "encoder", encoder);
    }
    return cli_json_print(all);
}

/* ---- Command ---- */

static int fail(const cli_model_header *h, mo_error *err)
{
    cli_model_header_say(h, err->detail, sizeof err->detail);
    cli_say_error("inspect", err);
    return CLI_FAILED;
}

static int print_tables(const cli_model_header *h, const mo_file *file, const mo_file_info *s, bool metadata,
                        bool tensors)
{
    printf("%s\n", h->name);
    print_model(file, s);
    print_formats(s);
    print_experts(s);
    print_encoder(file);
    if (s->layers) {
        print_token(s);
    }
    int code = metadata ? print_metadata(file) : CLI_OK;
    if (tensors && code == CLI_OK) {
        print_tensors(file);
    }
    return code;
}

static int inspect(const char *model, bool json, bool metadata, bool tensors)
{
    mo_error err;
    mo_file *file = NULL;
    mo_file_info summary;
    cli_model_header h;
    int code = cli_model_header_open("inspect", model, json, &h);
    if (code != CLI_OK) {
        return code;
    }
    if (mo_file_open(h.path, &file, &err) != MO_OK ||
        mo_file_summarize(file, &summary, sizeof summary, &err) != MO_OK) {
        code = fail(&h, &err);
    } else {
        code = json ? print_json(&h, file, &summary) : print_tables(&h, file, &summary, metadata, tensors);
    }
    mo_file_close(file);
    cli_model_header_close(&h);
    return code;
}

int cli_inspect(int argc, char **argv)
{
    bool json = false, tensors = false, metadata = false;
    const cli_option options[] = {
        {"metadata", 'm', CLI_FLAG, NULL, "list all keys with their values; long arrays are truncated",
         &metadata, 0, 0},
        {"tensors", 't', CLI_FLAG, NULL, "list all tensors with type, shape, size and offset", &tensors, 0,
         0},
        {"json", 0, CLI_FLAG, NULL, "print everything as JSON, without truncation", &json, 0, 0},
    };
    const cli_usage usage = {
        .command = "inspect",
        .arguments = "[MODEL]",
        .description =
            "Shows the contents of a GGUF model: formats, expert sizes, "
            "and the bytes read per token when nothing is cached. Reads "
            "only the header. For a split model, name the first part. MODEL may also be a name that "
            "moraine synth --list prints, or owner/repo[:quant], of which the header is "
            "downloaded." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine inspect model.gguf\n"
                    "  moraine inspect gpt-oss-120b\n"
                    "  moraine inspect --tensors model-00001-of-00003.gguf\n"
                    "  moraine inspect --json model.gguf | jq .token_bytes.total\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 0,
        .max_arguments = 1,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    return inspect(argv[first], json, metadata, tensors);
}

/* moraine show: a short version. */
int cli_show(int argc, char **argv)
{
    bool json = false;
    const cli_option options[] = {
        {"json", 0, CLI_FLAG, NULL, "print JSON", &json, 0, 0},
    };
    const cli_usage usage = {
        .command = "show",
        .arguments = "[MODEL]",
        .description = "Shows what a model is: name, architecture, parameters, experts, context, size. "
                       "moraine inspect shows more of its file." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine show model.gguf\n"
                    "  moraine show gpt-oss-20b\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .max_arguments = 1,
    };
    int first, code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    mo_error err;
    mo_file *file = NULL;
    mo_file_info summary;
    const char *path = cli_model_path("show", argv[first], json, &code);
    if (!path) {
        return code;
    }
    if (mo_file_open(path, &file, &err) != MO_OK ||
        mo_file_summarize(file, &summary, sizeof summary, &err) != MO_OK) {
        cli_say_error("show", &err);
        code = CLI_FAILED;
    } else if (json) {
        code = cli_json_print(json_pack("{s:o, s:o}", "path", cli_json_string(mo_file_part_path(file, 0)),
                                        "summary", summary_json(&summary)));
    } else {
        printf("%s\n", mo_file_part_path(file, 0));
        print_model(file, &summary);
        print_formats(&summary);
        print_encoder(file);
        code = CLI_OK;
    }
    mo_file_close(file);
    return code;
}
