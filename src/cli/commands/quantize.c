/* moraine quantize: writes a model with its weights in other formats. */
#include <moraine_server.h>

#include <stdio.h>

#include "cli/check.h"
#include "cli/commands/commands.h"
#include "cli/messages.h"
#include "cli/options.h"
#include "cli/print/terminal.h"
#include "cli/pulled.h"
#include "cli/signals.h"

static bool on_progress(void *user, int64_t done, int64_t total)
{
    cli_progress *p = user;
    p->total = (uint64_t)total;
    cli_progress_update(p, (uint64_t)done);
    return !cli_interrupted();
}

/* Prints on stderr, because the file may be stdout. */
static void print_report(const mo_quantize_report *r)
{
    char a[32], b[32];
    fprintf(stderr, "%-10s  %7s  %10s  %10s  %6s  %s\n", "", "tensors", "before", "after", "bits",
            "RMS error");
    for (int i = 0; i < MO_TENSOR_CLASSES; i++) {
        const mo_quantize_class *c = &r->classes[i];
        if (c->tensors == 0) {
            continue;
        }
        fprintf(stderr, "%-10s  %7lld  %10s  %10s  %6.3f  ", mo_tensor_class_text((mo_tensor_class)i),
                (long long)c->tensors, cli_bytes_text((uint64_t)c->bytes_before, a),
                cli_bytes_text((uint64_t)c->bytes_after, b),
                8.0 * (double)c->bytes_after / (double)c->values);
        if (c->converted) {
            fprintf(stderr, "%.3f %%\n", 100.0 * c->error);
        } else {
            fprintf(stderr, "copied\n");
        }
    }
    fprintf(stderr, "%-10s  %7s  %10s  %10s\n", "file", "", cli_bytes_text((uint64_t)r->file_bytes_before, a),
            cli_bytes_text((uint64_t)r->file_bytes_after, b));
}

int cli_quantize(int argc, char **argv)
{
    mo_quantize_options chosen = mo_quantize_options_default();
    const cli_option options[] = {
        {"experts", 0, CLI_TEXT, "FORMAT", "format of routed experts", &chosen.experts, 0, 0},
        {"rest", 0, CLI_TEXT, "FORMAT",
         "format of all other matrices: attention, shared experts, dense layers, embedding and output",
         &chosen.rest, 0, 0},
        {"output", 0, CLI_TEXT, "FORMAT", "format of the output matrix (default: as --rest)", &chosen.output,
         0, 0},
        {"embedding", 0, CLI_TEXT, "FORMAT", "format of the embedding (default: as --rest)",
         &chosen.embedding, 0, 0},
        {"threads", 't', CLI_INT, "N",
         "number of threads; the file does not depend on it (default: one per usable core)", &chosen.threads,
         1, 1024},
        {"force", 'f', CLI_FLAG, NULL, "overwrite an existing file", &chosen.overwrite, 0, 0},
    };
    const cli_usage usage = {
        .command = "quantize",
        .arguments = "IN OUT",
        .description = "Writes the model IN (for a split model, its first part) "
                       "to the single file OUT with its matrices in other "
                       "formats: F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, "
                       "Q4_K, Q4_1, Q4_0, IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q3_K or "
                       "Q2_K (IQ1 to IQ3, TQ1_0, TQ2_0, Q1_0 and Q2_0 can be "
                       "read but not written). Classes without a format are not "
                       "converted, and routers, vectors and convolutions never "
                       "are. Prints sizes and, for each class, the relative RMS "
                       "error. The file does not depend on threads or machine.",
        .examples = "  moraine quantize model-f16.gguf model.gguf --experts mxfp4 --rest q8_0\n"
                    "  moraine quantize model-f16.gguf model.gguf --experts q4_k --rest q6_k --output q8_0\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 2,
        .max_arguments = 2,
        .surplus = "formats are named by options, such as --experts q4_k --rest q6_k",
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    mo_error err;
    mo_quantize_report report;
    cli_progress progress;
    if (!chosen.experts && !chosen.rest && !chosen.output && !chosen.embedding) {
        fprintf(stderr,
                "moraine quantize: choose what to convert: --experts, --rest, --output or --embedding\n");
        return CLI_USAGE;
    }
    const char *source = cli_pulled_path("quantize", argv[first], &code);
    if (!source) {
        return code;
    }
    if (!cli_check_writable("quantize", "the output", argv[first + 1])) {
        return CLI_FAILED;
    }
    cli_progress_begin(&progress, "quantizing", 0);
    cli_signals_discard_part(argv[first + 1]);
    const mo_status status = mo_quantize_reported(source, argv[first + 1], &chosen, on_progress, &progress,
                                                  &report, sizeof report, &err);
    cli_signals_discard(NULL);
    cli_progress_end(&progress);
    if (status != MO_OK) {
        cli_say_error("quantize", &err);
        return status == MO_EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    print_report(&report);
    return CLI_OK;
}
