/* Plans for machines that are not here: GPUs, memories and disks by their names; published models by theirs. The table of
 * described machines says what is expected of each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "moraine_server.h"
#include "plan/probe/load.h"

#define GIB ((int64_t)1 << 30)

/* The header of a published model, in memory. */
static const char *header(const char *name, int *fd)
{
    static char path[64];
    mo_error err;
    *fd = memfd_create("header", MFD_CLOEXEC);
    assert_true(*fd >= 0);
    if (mo_synth_header(name, *fd, NULL, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    return path;
}

static mo_status plan(const char *model, const mo_plan_extra *extra, mo_model_options *o, mo_plan_report *r,
                      mo_error *err)
{
    int fd;
    const char *path = header(model, &fd);
    const mo_status status = mo_plan_file(path, o, extra, r, sizeof *r, err);
    close(fd);
    return status;
}

static int64_t experts_of(const mo_plan_report *r)
{
    int64_t experts = 0;
    for (int i = 0; i < r->class_count; i++) {
        experts += r->classes[i].experts;
    }
    return experts;
}

/* In percent of the experts; RAM with what is in VRAM as well. */
static double in_ram(const mo_plan_report *r)
{
    int64_t slots = 0;
    for (int i = 0; i < r->class_count; i++) {
        slots += r->classes[i].slots;
    }
    return 100.0 * (double)slots / (double)experts_of(r);
}

/* "tiered": the cores of layers that are in VRAM are on disk instead of RAM, which has experts. */
typedef struct expected {
    const char *model, *pc;
    const char *mode;
    double vram_least, vram_most, ram_least, ram_most; /* experts there, percent */
    double tokens_least, tokens_most;                  /* per second */
} expected;

static const expected table[] = {
    {"gpt-oss-20b", "rtx-3060, 32G", "resident", 100, 100, 100, 100, 60, 100},
    {"gpt-oss-20b", "rtx-4090, 64G", "", 100, 100, 0, 100, 130, 250},
    {"gpt-oss-20b", "16G", "resident", 0, 0, 100, 100, 8, 14},
    {"gpt-oss-120b", "rtx-4070, 96G", "resident", 10, 16, 100, 100, 15, 26},
    {"gpt-oss-120b", "rtx-5090, 96G, ddr5", "resident", 40, 52, 100, 100, 40, 75},
    {"gpt-oss-120b", "rtx-3060, 32G", "tiered", 10, 18, 40, 55, 2.5, 7},
    {"gpt-oss-120b", "rtx-3060, 32G, hdd", "tiered", 10, 18, 40, 55, 0.1, 0.6},
    {"qwen3-30b-a3b", "rtx-3060, 32G", "", 45, 65, 30, 100, 25, 60},
    {"qwen3.6-35b-a3b", "rtx-4060, 32G", "", 15, 40, 50, 100, 15, 50},
    {"qwen3-235b-a22b", "rtx-4090, 128G, ddr5", "slots", 8, 16, 75, 92, 5, 12},
    {"qwen3-coder-480b-a35b", "rtx-5090, 128G, ddr5, nvme-4", "tiered", 4, 12, 30, 48, 0.4, 3},
    {"glm-4.5", "rtx-4090, 128G", "tiered", 2, 12, 45, 65, 0.3, 2.5},
    {"deepseek-v3", "rtx-5090, 64G, nvme-5", "tiered", 1, 6, 5, 15, 0.3, 3},
    {"deepseek-v3", "h200, 128G, ddr5-server", "tiered", 20, 40, 18, 36, 0.4, 3},
};

static void described_machines_get_the_expected_placements(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const expected *e = &table[i];
        mo_plan_pc pc;
        mo_plan_report r;
        mo_error err;
        mo_model_options o = mo_model_options_default();
        assert_int_equal(mo_plan_pc_read(e->pc, &pc, &err), MO_OK);
        if (plan(e->model, &pc.extra, &o, &r, &err) != MO_OK) {
            fail_msg("%s, %s: %s", e->model, e->pc, err.detail);
        }
        const double vram = 100.0 * (double)r.device.slots / (double)experts_of(&r), ram = in_ram(&r);
        const bool good = (!*e->mode || strcmp(e->mode, r.mode) == 0) && vram >= e->vram_least &&
                          vram <= e->vram_most && ram >= e->ram_least && ram <= e->ram_most &&
                          r.tokens_per_second >= e->tokens_least && r.tokens_per_second <= e->tokens_most;
        wrong += !good;
        print_message("%s%s, %s: %s, experts %.0f %% in VRAM, %.0f %% in RAM, %.2f tokens/s, prompts %.0f, "
                      "batch %lld\n",
                      good ? "" : "WRONG ", e->model, e->pc, r.mode, vram, ram, r.tokens_per_second,
                      r.prompt_tokens_per_second, (long long)r.batch);
        assert_true(strstr(r.described, "NVMe") || strstr(r.described, "hard disk"));
        assert_int_equal(r.device.ceiling_bytes > 0, strchr(e->pc, ',') != NULL);
    }
    assert_int_equal(wrong, 0);
}

/* Cards of the same memory: what has faster memory, link or matrix units is never slower. */
static void a_faster_card_is_never_slower(void **state)
{
    (void)state;
    static const char *const cards[] = {"rtx-3060", "rtx-4070", "rtx-4070-super", "rtx-4070-ti"};
    double tokens = 0, prompts = 0;
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        mo_plan_report r;
        mo_error err;
        mo_model_options o = mo_model_options_default();
        o.batch = 1024;
        const mo_plan_extra extra = {
            .size = sizeof extra, .gpu = cards[i], .cpu = "ddr4", .disk = "nvme-3", .pc_ram_bytes = 64 * GIB};
        assert_int_equal(plan("qwen3-30b-a3b", &extra, &o, &r, &err), MO_OK);
        assert_true(r.tokens_per_second >= tokens);
        assert_true(r.prompt_tokens_per_second >= prompts);
        tokens = r.tokens_per_second;
        prompts = r.prompt_tokens_per_second;
    }
}

static void every_known_gpu_can_be_planned_for(void **state)
{
    (void)state;
    mo_known_gpu_info g;
    mo_plan_report r;
    mo_error err;
    int count = 0;
    for (; mo_known_gpu(count, &g, sizeof g); count++) {
        mo_model_options o = mo_model_options_default();
        const mo_plan_extra extra = {.size = sizeof extra, .gpu = g.name, .pc_ram_bytes = 64 * GIB};
        o.batch = 512;
        assert_int_equal(plan("gpt-oss-20b", &extra, &o, &r, &err), MO_OK);
        assert_string_equal(r.device.name, g.title);
        assert_true(r.device.ceiling_bytes < g.memory_bytes &&
                    r.device.ceiling_bytes > g.memory_bytes * 4 / 5);
        assert_true(fabs(r.device.memory_bytes_s / g.memory_bytes_s - 0.645) < 1e-6);
    }
    assert_true(count > 24);
}

/* Without a GPU a ceiling of its memory is that of a card that has as much. */
static void a_ceiling_alone_describes_a_card(void **state)
{
    (void)state;
    static const struct {
        int64_t vram;
        const char *name;
    } cards[] = {{6, "RTX 2060"},           {8, "RTX 3050"},  {12, "RTX 3060"},
                 {16, "RTX 4060 Ti 16 GB"}, {24, "RTX 3090"}, {30, "RTX 5090"}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        mo_plan_report r;
        mo_error err;
        mo_model_options o = mo_model_options_default();
        const mo_plan_extra extra = {.size = sizeof extra, .gpu = "auto", .pc_ram_bytes = 32 * GIB};
        o.vram_bytes = cards[i].vram * GIB;
        assert_int_equal(plan("gpt-oss-20b", &extra, &o, &r, &err), MO_OK);
        assert_string_equal(r.device.name, cards[i].name);
        assert_non_null(strstr(r.described, cards[i].name));
        assert_true(r.device.ceiling_bytes <= o.vram_bytes);
    }
}

static void expect_refusal(const char *pc, const char *words)
{
    mo_plan_pc out;
    mo_error err = {0};
    assert_int_equal(mo_plan_pc_read(pc, &out, &err), MO_EINVAL);
    if (!strstr(err.detail, words)) {
        fail_msg("%s: %s", pc, err.detail);
    }
}

static void what_is_no_part_of_a_pc_is_refused(void **state)
{
    (void)state;
    mo_error err;
    mo_plan_report r;
    mo_plan_pc pc;
    mo_model_options o = mo_model_options_default();
    expect_refusal("rtx-3060", "how much RAM");
    expect_refusal("", "how much RAM");
    expect_refusal("rtx-306, 32G", "did you mean rtx-3060");
    expect_refusal("rtx-4091, 32G", "did you mean rtx-4090? Expected");
    expect_refusal("rtx-3060, 32", "\"32\" is not a part of a PC; did you mean 32G?");
    expect_refusal("4070, 32G", "did you mean rtx-4070?");
    expect_refusal("32G, 64G", "\"64G\" is not a part of a PC. Expected");
    expect_refusal("rtx-3060, rtx-4070, 32G", "\"rtx-4070\"");
    assert_int_equal(mo_plan_pc_read(" RTX 4090 ,\t48GiB,ddr5 ,nvme-5", &pc, &err), MO_OK);
    assert_int_equal(pc.extra.pc_ram_bytes, 48 * GIB);
    assert_int_equal(plan("smollm2-135m", &pc.extra, &o, &r, &err), MO_OK);
    mo_plan_extra extra = {.size = sizeof extra, .cpu = "ddr6"};
    assert_int_equal(plan("smollm2-135m", &extra, &o, &r, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "did you mean ddr4? Choose one of ddr4, ddr3, ddr5"));
    extra = (mo_plan_extra){.size = sizeof extra, .disk = "25 GB/s"};
    assert_int_equal(plan("smollm2-135m", &extra, &o, &r, &err), MO_EINVAL);
    extra = (mo_plan_extra){.size = sizeof extra, .disk = "2GB/s", .cpu = "60GB/s"};
    assert_int_equal(plan("smollm2-135m", &extra, &o, &r, &err), MO_OK);
    assert_true(r.disk_bytes_s == 2e9 && r.ram_bytes_s == 60e9);
    assert_string_equal(r.described, "memory at 60 GB/s, a disk at 2 GB/s");
}

static void machine_files_take_sizes_with_units(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        mo_status status;
    } files[] = {{"{\"ram_bytes\": \"32G\", \"vram_bytes\": \"7.5GiB\"}", MO_OK},
                 {"{\"ram_bytes\": \"32 apples\"}", MO_EFORMAT},
                 {"{\"ram_bytes\": 34359738368, \"vram_bytes\": 8053063680}", MO_OK}};
    char path[512];
    snprintf(path, sizeof path, "%s/machine.json", folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        mo_error err;
        mo_plan_report r;
        mo_model_options o = mo_model_options_default();
        const mo_plan_extra extra = {.size = sizeof extra, .machine = path};
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(files[i].json, file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(plan("gpt-oss-20b", &extra, &o, &r, &err), files[i].status);
        if (files[i].status == MO_OK) {
            assert_int_equal(r.device_bytes, 15 * GIB / 2);
            assert_int_equal(r.available_bytes, 32 * GIB);
        } else {
            assert_non_null(strstr(err.detail, "\"32G\""));
        }
    }
}

/* Of 10 s of all programs 4 were others', on a made machine. */
static void a_busy_machine_is_seen(void **state)
{
    (void)state;
    assert_int_equal(folder_put("/proc/stat", "cpu 100 0 50 1000 0 7 7 0 0 0\n"), 0);
    mo_load begin = mo_load_begin(folder);
    assert_true(begin.known);
    begin.at_ns -= INT64_C(10000000000);
    assert_int_equal(folder_put("/proc/stat", "cpu 400 50 100 1500 0 7 700 0 0 0\n"), 0);
    const double cores = 400.0 / (double)sysconf(_SC_CLK_TCK) / 10;
    assert_true(fabs(mo_load_others(folder, &begin) / cores - 1) < 0.05);
    assert_int_equal(folder_put("/proc/stat", "none"), 0);
    assert_true(mo_load_others(folder, &begin) == 0);
    assert_true(mo_load_disturbs(0.4, 2) && !mo_load_disturbs(0.2, 1) && !mo_load_disturbs(1, 16));
    assert_true(mo_load_disturbs(2, 16));
}

static void shapes_are_found_by_name_and_the_nearest_is_suggested(void **state)
{
    (void)state;
    static const struct {
        const char *given, *found, *hint;
    } names[] = {{"gpt-oss-120b", "gpt-oss-120b", NULL},
                 {"GPT-OSS-120B", "gpt-oss-120b", NULL},
                 {"qwen3-235b", "qwen3-235b-a22b", NULL},
                 {"gpt-oss-12b", NULL, "did you mean gpt-oss-120b"},
                 {"qwen3-coder", NULL, NULL},
                 {"glm-4.60", NULL, "did you mean glm-4.6"},
                 {"zzz", NULL, "choose one of"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *found = NULL;
        mo_error err = {0};
        const int fd = memfd_create("header", MFD_CLOEXEC);
        const mo_status status = mo_synth_header(names[i].given, fd, &found, &err);
        assert_int_equal(status, names[i].found ? MO_OK : MO_ENOENT);
        if (names[i].found) {
            assert_string_equal(found, names[i].found);
        } else if (names[i].hint && !strstr(err.detail, names[i].hint)) {
            fail_msg("%s: %s", names[i].given, err.detail);
        }
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(described_machines_get_the_expected_placements),
        cmocka_unit_test(a_faster_card_is_never_slower),
        cmocka_unit_test(every_known_gpu_can_be_planned_for),
        cmocka_unit_test(a_ceiling_alone_describes_a_card),
        cmocka_unit_test(what_is_no_part_of_a_pc_is_refused),
        cmocka_unit_test(machine_files_take_sizes_with_units),
        cmocka_unit_test(a_busy_machine_is_seen),
        cmocka_unit_test(shapes_are_found_by_name_and_the_nearest_is_suggested),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
