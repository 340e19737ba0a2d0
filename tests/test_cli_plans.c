/* The program's plans: what it says that a model will do, on this machine or others, measured or not; models larger than RAM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"
#include "program_json.h"
#include "sanitized.h"

#define TINY    MO_TEST_DATA "/oracle/qwen3.gguf"
#define PEBBLE  MO_TEST_MODEL
#define SMALLER " --ctx 256 --batch 32 --ram 28M " /* of it: part of its experts in RAM */

static void test_plan(void **state)
{
    (void)state;
    assert_int_equal(run("plan " PEBBLE SMALLER), 0);
    assert_int_equal(strlen(errors), 0);
    assert_non_null(strstr(output, "read from disk (mode: slots)"));
    assert_non_null(strstr(output, "of 448 experts"));
    assert_non_null(strstr(output, "a RAM ceiling of 28.0 MiB was given"));
    assert_int_equal(run("plan " PEBBLE SMALLER "--json"), 0);
    json_t *root = parse_output();
    assert_string_equal(json_string_value(json_object_get(root, "mode")), "slots");
    const json_int_t used = json_integer_value(json_object_get(root, "used_bytes"));
    json_int_t sum = 0;
    const char *name;
    json_t *bytes;
    json_object_foreach(json_object_get(root, "ram_bytes"), name, bytes)
    {
        sum += json_integer_value(bytes);
    }
    assert_int_equal(sum, used);
    assert_int_equal(json_integer_value(json_object_get(root, "ceiling_bytes")), 28 << 20);
    assert_true(used <= 28 << 20);
    assert_true(json_integer_value(json_object_get(root, "least_bytes")) < used);
    assert_true(json_integer_value(json_object_get(root, "whole_bytes")) > 28 << 20);
    assert_int_equal(json_integer_value(json_object_get(root, "routed_layers")), 7);
    assert_int_equal(json_integer_value(json_object_get(root, "experts_used")), 6);
    assert_true(number(root, "disk_bytes", "experts") > 0);
    assert_true(number(root, "token", "disk_bytes") > 0);
    const double slow = json_real_value(json_object_get(root, "tokens_per_second"));
    json_decref(root);
    assert_int_equal(run("plan " PEBBLE " --ctx 256 --batch 32 --ram 1G --kv f16 --json"), 0);
    root = parse_output();
    assert_string_equal(json_string_value(json_object_get(root, "mode")), "resident");
    assert_string_equal(json_string_value(json_object_get(root, "kv")),
                        "i16"); /* what it is, not what it was called */
    assert_int_equal(number(root, "token", "disk_bytes"), 0);
    assert_true(json_real_value(json_object_get(root, "tokens_per_second")) > slow);
    json_decref(root);
    assert_int_equal(run("plan " PEBBLE " --machine " MO_TEST_DATA "/machine-three-tiers.json --json"), 0);
    assert_non_null(strstr(errors, "older than those of experts by size")); /* as files of earlier versions */
    root = parse_output();
    assert_true(json_is_true(json_object_get(json_object_get(root, "rates"), "measured")));
    assert_true(json_integer_value(json_object_get(root, "device_bytes")) > 20000000000);
    json_decref(root);
    expect_failure("plan " PEBBLE " --ram 1M", 1, "of memory");
    assert_non_null(strstr(errors, "are needed"));
    expect_failure("plan " PEBBLE " --ram 0", 2, "above 0");
    expect_failure("plan " PEBBLE " --ram 24", 2,
                   "--ram 24: expected a size with its unit; did you mean 24G?");
    expect_failure("plan " PEBBLE " --vram 8,1.5", 2,
                   "--vram 8,1.5: expected a size with its unit; did you mean 8G?");
    expect_failure("plan " PEBBLE " --ram much", 2, "a size such as 512M");
    expect_failure("plan " PEBBLE " --kv f8", 2, "i16, f32 or q8_0");
    expect_failure("plan " PEBBLE " --machine none.json", 1, "none.json");
    write_file("odd.json", "{\"speed\": 5}", 12);
    expect_failure("plan " PEBBLE " --machine odd.json", 1, "speed");
    expect_failure("plan none.gguf", 1, "none.gguf");
    expect_failure("plan gpt-oss-20b --gpu rtx-407", 2, "did you mean rtx-4070?");
    expect_failure("plan gpt-oss-20b --gpu 4070", 2, "did you mean rtx-4070?");
    expect_failure("plan gpt-oss-20b --gpu abacus", 2, "h100, rtx-pro-6000, h200; a machine file");
}

static double depth_of(const char *command, const char *what)
{
    assert_int_equal(run(command), 0);
    json_t *root = parse_output();
    const double value = json_real_value(json_object_get(json_object_get(root, "depth"), what));
    json_decref(root);
    return value;
}

/* Both are said. Attention reads in proportion to the context, but for layers with a window; formats differ. */
static void test_plan_depth(void **state)
{
    (void)state;
    assert_int_equal(run("plan " TINY " --ctx 4096 --device none"), 0);
    assert_non_null(strstr(output, "empty context"));
    assert_non_null(strstr(output, "tokens/s: the KV cache of 4096 tokens takes"));
    const double empty = depth_of("plan " TINY " --ctx 4096 --device none --json", "empty_tokens_per_second"),
                 full = depth_of("plan " TINY " --ctx 4096 --device none --json", "full_tokens_per_second"),
                 short_s = depth_of("plan " TINY " --ctx 1024 --device none --json", "attention_seconds"),
                 long_s = depth_of("plan " TINY " --ctx 4096 --device none --json", "attention_seconds"),
                 codes_s =
                     depth_of("plan " TINY " --ctx 4096 --kv q8_0 --device none --json", "attention_seconds");
    assert_true(full < empty && fabs(1 / full - 1 / empty - long_s) < 1e-9);
    assert_true(fabs(long_s / short_s - 4) < 1e-6);
    assert_true(codes_s > 0.45 * long_s && codes_s < 0.7 * long_s);
}

/* Machines that are not there. */
static void test_plan_hosts(void **state)
{
    static const char four[] = "# rank 0 comes first\ndefault ram=28M cpu=25GB/s link=10Gbit/s latency=30us\n"
                               "anna\nbert\ncarl ram=1G\ndora ram=1G vram=1G\n";
    (void)state;
    write_file("four.txt", four, sizeof four - 1);
    assert_int_equal(run("plan " PEBBLE " --ctx 256 --hosts four.txt"), 0);
    assert_int_equal(strlen(errors), 0);
    assert_non_null(strstr(output, "split by layers across 4 hosts, context of 256 tokens"));
    assert_non_null(strstr(output, "layers: a prompt of 256 tokens"));
    assert_non_null(strstr(output, "tokens are bound by"));
    assert_non_null(strstr(output, "VRAM sizes are those of the hosts file"));
    assert_int_equal(run("plan " PEBBLE " --ctx 256 --hosts four.txt --divide experts --json"), 0);
    json_t *root = parse_output(), *hosts = json_object_get(root, "hosts");
    assert_string_equal(json_string_value(json_object_get(root, "way")), "experts");
    assert_string_equal(json_string_value(json_object_get(root, "why")), "as requested");
    assert_int_equal(json_array_size(hosts), 4);
    json_int_t layers = 0, experts = 0;
    for (size_t i = 0; i < 4; i++) {
        const json_t *h = json_array_get(hosts, i);
        assert_int_equal(json_integer_value(json_object_get(h, "first_layer")), layers);
        assert_int_equal(json_integer_value(json_object_get(h, "first_expert")), experts);
        layers += json_integer_value(json_object_get(h, "layers"));
        experts += json_integer_value(json_object_get(h, "experts"));
    }
    assert_int_equal(layers, 7);
    assert_int_equal(experts, 64);
    const json_t *token = json_object_get(json_object_get(root, "by_experts"), "token");
    static const char *const parts[] = {"core_seconds", "expert_seconds", "latency_seconds", "wire_seconds"};
    double left = json_real_value(json_object_get(token, "seconds"));
    assert_true(left > 0);
    for (size_t i = 0; i < 4; i++) {
        left -= json_real_value(json_object_get(token, parts[i]));
    }
    assert_true(left > -1e-9 && left < 1e-9);
    json_decref(root);
    write_file("bad.txt", "a ram=1G\nb ram=1G latency=30\n", 29);
    expect_failure("plan " PEBBLE " --hosts bad.txt", 1, "bad.txt: line 2: latency=30 is not a time");
    expect_failure("plan " PEBBLE " --hosts none.txt", 1, "none.txt");
    expect_failure("plan " PEBBLE " --hosts four.txt --divide rows", 2, "layers, experts or auto");
    expect_failure("plan " PEBBLE " --hosts four.txt --ram 1G", 2, "--ram has no effect with --hosts");
    expect_failure("plan " PEBBLE " --hosts four.txt --svg x.svg", 2, "--svg has no effect with --hosts");
    expect_failure("plan " PEBBLE " --hosts four.txt --speculate auto", 2,
                   "--speculate has no effect with --hosts");
    expect_failure("plan " PEBBLE " --divide layers", 2, "--divide has no effect without --hosts");
    expect_failure("plan none.gguf --hosts four.txt", 1, "none.gguf");
}

/* The simulated GPU stands for any other. */
static void test_plan_device(void **state)
{
    char line[256];
    (void)state;
    setenv("MORAINE_SIM", "memory=24M,link=5G", 1);
    assert_int_equal(run("plan " PEBBLE " --ctx 256 --batch 32 --device sim --json"), 0);
    assert_int_equal(strlen(errors), 0);
    json_t *root = parse_output(), *device = json_object_get(root, "device");
    json_int_t sum = 0;
    const char *name;
    json_t *bytes;
    json_object_foreach(json_object_get(device, "bytes"), name, bytes)
    {
        sum += json_integer_value(bytes);
    }
    assert_int_equal(sum, json_integer_value(json_object_get(device, "used_bytes")));
    assert_int_equal(json_integer_value(json_object_get(device, "ceiling_bytes")), 18 << 20);
    assert_true(sum <= 18 << 20);
    assert_true(json_integer_value(json_object_get(device, "slots")) > 100);
    assert_true(json_is_false(json_object_get(device, "fetch"))); /* these experts are tiny */
    assert_true(json_real_value(json_object_get(json_object_get(device, "rates"), "link_bytes_s")) == 5e9);
    assert_true(number(device, "token", "device_bytes") > 0);
    assert_true(json_is_null(json_object_get(root, "why_no_device")));
    const double half = json_real_value(json_object_get(root, "tokens_per_second"));
    json_decref(root);
    assert_int_equal(
        run("plan " PEBBLE " --ctx 256 --batch 32 --device sim --cpu-moe --postfetch down --json"), 0);
    root = parse_output();
    device = json_object_get(root, "device");
    assert_int_equal(json_integer_value(json_object_get(device, "slots")), 0);
    assert_true(json_is_true(json_object_get(device, "fetch")));
    assert_true(json_real_value(json_object_get(root, "tokens_per_second")) < half);
    json_decref(root);
    assert_int_equal(run("plan " PEBBLE " --ctx 256 --batch 32 --device sim --vram 12M"), 0);
    assert_non_null(strstr(output, "In VRAM"));
    assert_non_null(strstr(output, "fetch lane"));
    assert_non_null(strstr(output, "a ceiling of 12.0 MiB was given"));
    expect_failure("plan " PEBBLE " --device sim --vram 1M", 1, "of VRAM");
    /* What it names is enough, and the least, although smaller contexts were tried, which need more. */
    const long long enough = atoll(strstr(errors, "of VRAM (") + strlen("of VRAM ("));
    snprintf(line, sizeof line, "plan " PEBBLE " --device sim --vram %lld", enough);
    assert_int_equal(run(line), 0);
    snprintf(line, sizeof line, "plan " PEBBLE " --device sim --vram %lld", enough - 1);
    expect_failure(line, 1, "of VRAM");
    assert_non_null(strstr(errors, "--device none"));
    expect_failure("plan " PEBBLE " --device gpu", 2, "none, sim, cuda or auto");
    expect_failure("plan " PEBBLE " --postfetch up", 2, "down, expert, auto or off");
    expect_failure("plan " PEBBLE " --device none --vram 1G", 2, "--vram");
    expect_failure("plan " PEBBLE " --vram 0", 2, "--device none");
    expect_failure("plan " PEBBLE " --machine " MO_TEST_DATA "/machine-three-tiers.json --device sim", 2,
                   "the description of the machine says");
    setenv("MORAINE_SIM", "memory=lots", 1);
    expect_failure("plan " PEBBLE " --device sim", 2, "MORAINE_SIM");
    unsetenv("MORAINE_SIM");
    /* A step that is too large says so; RAM, of which there is enough, is none of it. */
    static const char *const ceilings[] = {"60M", "78M"};
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "plan " PEBBLE " --device sim --ram 1G --vram %s --ctx 8192 --batch 2048",
                 ceilings[i]);
        assert_int_equal(run(line), 1); /* a warning about the context goes before */
        assert_non_null(
            strstr(errors, "raise --vram to that, reduce --ctx or --batch, or run with --device none"));
    }
    assert_int_equal(run("plan " PEBBLE " --device none --json"), 0);
    root = parse_output();
    assert_true(json_is_null(json_object_get(root, "device")));
    json_decref(root);
    assert_int_equal(run("plan " PEBBLE " --machine " MO_TEST_DATA "/machine-three-tiers.json"), 0);
    assert_non_null(strstr(output, "everything is in VRAM"));
    /* Speeds below a tenth of a token per second are seconds. */
    shell("echo '{\"ram_bytes\": 30e6, \"threads\": 1, \"ram_bytes_s\": 1e9, \"disk_bytes_s\": 5e4}' "
          ">slow.json");
    assert_int_equal(run("plan " PEBBLE " --machine slow.json --ctx 128 --batch 16"), 0);
    assert_non_null(strstr(output, "  s a token\n"));
    setenv("LLAMA_POSTFETCH_MAX_TRANSFERS", "none", 1);
    expect_failure("plan " PEBBLE, 2, "LLAMA_POSTFETCH_MAX_TRANSFERS=none");
    unsetenv("LLAMA_POSTFETCH_MAX_TRANSFERS");
}

static void test_probe(void **state)
{
    (void)state;
    json_t *root;
    shell("mkdir -p probing && rm -f moraine/rates.json");
    if (!SANITIZED) { /* what is measured twice takes long there */
        assert_int_equal(
            run("--version >/dev/null; cd probing; " MO_PROGRAM " probe " PEBBLE " --dry --json -t 1"), 0);
        assert_int_equal(strlen(errors), 0);
        root = parse_output();
        assert_true(json_real_value(json_object_get(root, "ram_bytes_s")) > 0.0);
        assert_true(json_real_value(json_object_get(root, "disk_bytes_s")) > 0.0);
        assert_int_equal(json_array_size(json_object_get(root, "memory")), 1);
        assert_true(json_array_size(json_object_get(root, "disk")) > 1);
        assert_true(json_is_null(json_object_get(root, "saved")));
        json_decref(root);
        shell("test -z \"$(ls -A probing)\" && test ! -e moraine/rates.json"); /* nothing is kept */
    }
    expect_failure("probe " PEBBLE " --dir .", 2, "not both");
    expect_failure("probe --dry -o rates.json", 2, "not both");
    expect_failure("probe none.gguf", 1, "none.gguf");
    expect_failure("probe --dir none", 1, "none");
    expect_failure("probe " PEBBLE " --dry --device gpu", 2, "none, sim, cuda or auto");
    setenv("MORAINE_SIM", "memory=8M", 1); /* keeps what it found, and plans take it */
    assert_int_equal(run("probe " PEBBLE " --device sim -t 1 --json --force"), 0);
    root = parse_output();
    assert_true(json_real_value(json_object_get(json_object_get(root, "device"), "link_bytes_s")) > 0.0);
    assert_int_equal(json_array_size(json_object_get(json_object_get(root, "device"), "copies")), 2);
    json_decref(root);
    assert_int_equal(run("plan " PEBBLE " --ctx 64 --batch 32 --device sim --json"), 0);
    assert_null(strstr(errors, "older than those")); /* there was no memory to measure them, which is known */
    root = parse_output();
    json_t *rates = json_object_get(json_object_get(root, "device"), "rates");
    assert_true(json_is_true(json_object_get(rates, "measured")));
    json_decref(root);
    /* What the wires allow counts with copies as large as experts' matrices, three of each. */
    shell("sed -i -E 's/\"link_copy_s\": [^,}]*/\"link_copy_s\": 0.001/; s/\"link_bytes_s\": "
          "[^,}]*/\"link_bytes_s\": 1e9/' "
          "moraine/rates.json && grep -q 'link_copy_s.*0.001' moraine/rates.json");
    setenv("MORAINE_SIM", "memory=64M", 1);
    assert_int_equal(
        run("bench " PEBBLE
            " --parallel 2 --prefill 8 --decode 3 --rounds 1 --ctx 64 --device sim --cpu-moe --json"),
        0);
    root = parse_output();
    const json_t *wires = json_object_get(root, "wires");
    const double bytes = json_real_value(json_object_get(wires, "bytes_per_step")) /
                         json_real_value(json_object_get(wires, "missing_per_step"));
    const double link = json_real_value(json_object_get(wires, "link_bytes_s"));
    assert_true(fabs(link / (bytes / (bytes / 1e9 + 3e-3)) - 1) < 1e-3);
    json_decref(root);
    unsetenv("MORAINE_SIM");
    shell("rm moraine/rates.json");
}

static void test_plans_and_speeds_are_drawn(void **state)
{
    (void)state;
    assert_int_equal(run("plan " PEBBLE " --device sim --vram 28M --ram 50M --svg plan.svg --json"), 0);
    shell("grep -q '<svg' plan.svg && grep -q 'VRAM (simulated' plan.svg && grep -q 'tokens/s expected' "
          "plan.svg");
    assert_int_equal(run("bench " PEBBLE " --rounds 1 --prefill 16 --decode 4 --svg bench.svg"), 0);
    shell("grep -q 'prompt of 16 tokens' bench.svg && grep -q attention bench.svg && grep -q 'answer of 4 "
          "tokens' bench.svg");
    expect_failure("bench " PEBBLE " --parallel 2 --svg x.svg", 2, "--svg supports one sequence only");
}

static void test_trace_and_replay(void **state)
{
    (void)state;
    write_file("tale", "Once upon a time there was a fox. The fox had a friend.", 55);
    assert_int_equal(run("trace " PEBBLE " --text tale -p 'The fox' -n 5 --temp 0 --ignore-eos"), 2);
    assert_int_equal(
        run("trace " PEBBLE " --text tale --chat -p 'Tell me a story.' -n 8 --temp 0 -o fox.trace"), 0);
    assert_int_equal(strlen(output), 0);
    assert_non_null(strstr(errors, "and 8 answer tokens"));
    assert_int_equal(run("trace " PEBBLE
                         " --text tale --chat -p 'Tell me a story.' -n 8 --temp 0 -q -o under.trace" SMALLER),
                     0);
    assert_int_equal(strlen(errors), 0);
    assert_int_equal(run("replay fox.trace --budget 10%,100%,2M --svg hits.svg --heat picks.svg --json"), 0);
    assert_int_equal(strlen(errors), 0);
    json_t *root = parse_output();
    assert_int_equal(json_integer_value(json_object_get(root, "generation_tokens")), 8);
    assert_int_equal(json_integer_value(json_object_get(root, "texts")), 2);
    json_t *results = json_object_get(root, "results");
    assert_int_equal(json_array_size(results), 3 * 5); /* four policies and the optimum */
    for (size_t i = 10; i < 15; i++) {                 /* with everything in RAM each expert is read once */
        json_t *all = json_array_get(results, i);
        assert_true(json_real_value(json_object_get(all, "budget_share")) == 1.0);
        assert_true(number(all, "prompt", "bytes_read") + number(all, "generation", "bytes_read") <=
                    json_integer_value(json_object_get(root, "expert_bytes")));
    }
    json_decref(root);
    shell("grep -q '<svg' hits.svg && grep -q '<svg' picks.svg");
    assert_int_equal(run("replay fox.trace --policy lru --warm fox.trace --step 1"), 0);
    assert_non_null(strstr(output, "optimum"));
    assert_null(strstr(output, "lfu"));
    expect_failure("replay none.trace", 1, "none.trace");
    expect_failure("replay tale", 1, "tale");
    expect_failure("replay fox.trace --budget 0%", 2, "a share such as 25%");
    expect_failure("replay fox.trace --policy mru", 2, "unknown policy mru");
    expect_failure("replay fox.trace --budget 1K", 1, "layer");
    expect_failure("trace " PEBBLE " -p x", 2, "-o FILE");
    expect_failure("trace " TINY " -p x -q -o x.trace --temp 0", 1, "routed");
}

static void test_ceiling(void **state)
{
    (void)state;
    assert_int_equal(run("run " PEBBLE " -p 'The fox' --raw -n 40 --temp 0 --profile off"), 0);
    char *whole = strdup(output);
    static const char *const variants[] = {"", "--policy lru --predict off --io cached",
                                           "--policy priority --readers 1",
                                           "--policy lfu --predict on --io auto"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "run " PEBBLE " -p 'The fox' --raw -n 40 --temp 0 --profile off" SMALLER "%s", variants[i]);
        assert_int_equal(run(line), 0);
        assert_string_equal(output, whole);
    }
    free(whole);
    assert_int_equal(run("bench " PEBBLE SMALLER "--prefill 48 --decode 8 --rounds 1 --profile off"), 0);
    assert_non_null(strstr(output, "ceiling 28.0 MiB"));
    assert_non_null(strstr(output, "policy auto"));
    assert_non_null(strstr(output, "disk "));
    assert_int_equal(
        run("bench " PEBBLE SMALLER "--prefill 48 --decode 8 --rounds 1 --profile off --policy lru --json"),
        0);
    json_t *root = parse_output(), *tiers = json_object_get(root, "tiers");
    assert_string_equal(json_string_value(json_object_get(tiers, "mode")), "slots");
    assert_string_equal(json_string_value(json_object_get(tiers, "policy")), "lru");
    assert_true(number(tiers, "generation", "passes") >= 8);
    assert_int_equal(number(tiers, "generation", "asked"), 7 * 6 * number(tiers, "generation", "passes"));
    assert_true(number(tiers, "disk", "bytes") > 0);
    assert_int_equal(json_integer_value(json_object_get(tiers, "skipped")), 0);
    json_decref(root);
    write_file("tale", "Once upon a time there was a fox. The fox had a friend.", 55);
    assert_int_equal(run("eval " PEBBLE " tale --save-logits exact --profile off"), 0);
    assert_int_equal(run("eval " PEBBLE " tale --compare exact --profile off --json" SMALLER), 0);
    root = parse_output();
    assert_true(json_real_value(json_object_get(root, "kl_divergence")) == 0.0);
    json_decref(root);
    assert_int_equal(run("eval " PEBBLE " tale --compare exact --profile off --json --skip-missing" SMALLER),
                     0);
    assert_non_null(strstr(errors, "experts were skipped"));
    root = parse_output();
    assert_true(json_real_value(json_object_get(root, "kl_divergence")) > 0.0);
    json_decref(root);
}

static void test_wrong_tiers(void **state)
{
    (void)state;
    expect_failure("run " PEBBLE " -p a --io fast", 2, "--io must be direct, cached or auto, not fast");
    expect_failure("run " PEBBLE " -p a --predict maybe", 2, "--predict must be on or off, not maybe");
    expect_failure("bench " PEBBLE " --predict 1", 2, "--predict must be on or off, not 1");
    expect_failure("chat " PEBBLE " --predict 1", 2, "--predict must be on or off, not 1");
    expect_failure("eval " PEBBLE " out --policy mru", 2, "unknown --policy \"mru\"; choose one of auto");
    expect_failure("run " PEBBLE " -p a --readers 0", 2, "from 1 to 64");
    expect_failure("run " PEBBLE " -p a --ram some", 2, "a size such as 512M");
    expect_failure("run " PEBBLE " -p a --mmap --ram 1G", 2, "--mmap");
    expect_failure("run " PEBBLE " -p a --mmap --skip-missing", 2, "--mmap");
    expect_failure("run " PEBBLE " -p a --ram 10M --seed 1", 1, "are needed");
    assert_non_null(
        strstr(errors, "raise --ram to that")); /* the library names settings, the program its options */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_depth),
        cmocka_unit_test(test_plan_hosts),
        cmocka_unit_test(test_plan_device),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_plans_and_speeds_are_drawn),
        cmocka_unit_test(test_trace_and_replay),
        cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_wrong_tiers),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
