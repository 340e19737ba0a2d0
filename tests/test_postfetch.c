/* Post-Fetch's settings: options and environment as its design names them, and the capacity they ask for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/postfetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

/* An environment of our own: NAME=value strings, without the prefix. */
static const char *look_up(void *user, const char *name)
{
    static const char prefix[] = "LLAMA_POSTFETCH_";
    assert_memory_equal(name, prefix, sizeof prefix - 1);
    name += sizeof prefix - 1;
    for (const char *const *entry = user; *entry; entry++) {
        const size_t n = strlen(name);
        if (strncmp(*entry, name, n) == 0 && (*entry)[n] == '=') {
            return *entry + n + 1;
        }
    }
    return NULL;
}

#define SET(...) ((void *)(const char *const[]){__VA_ARGS__, NULL})

static mo_postfetch read_all(mo_postfetch_mode option, void *environment, mo_postfetch_notes *notes)
{
    mo_postfetch p;
    mo_error err;
    *notes = (mo_postfetch_notes){0};
    if (mo_postfetch_settings(option, look_up, environment, &p, notes, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return p;
}

static void assert_same(const mo_postfetch *a, const mo_postfetch *b)
{
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->force_cpu, b->force_cpu);
    assert_int_equal(a->block_on_miss, b->block_on_miss);
    assert_int_equal(a->max_transfers, b->max_transfers);
    assert_int_equal(a->scratch_mb, b->scratch_mb);
    assert_int_equal(a->dedicated_streams, b->dedicated_streams);
    assert_int_equal(a->cpu_limit, b->cpu_limit);
    assert_int_equal(a->debug, b->debug);
}

static void defaults_are_the_documents(void **state)
{
    (void)state;
    mo_postfetch_notes notes;
    mo_postfetch p = read_all(MO_POSTFETCH_DEFAULT, SET("NOTHING=0"), &notes);
    const mo_postfetch standard = p;
    assert_int_equal(notes.count, 0);
    assert_int_equal(p.mode, MO_POSTFETCH_AUTO);
    assert_true(p.block_on_miss && p.dedicated_streams && !p.force_cpu && !p.debug);
    assert_int_equal(p.max_transfers, 8);
    assert_int_equal(p.scratch_mb, 0);
    assert_int_equal(p.cpu_limit, 6);
    p = read_all(MO_POSTFETCH_DEFAULT, SET("ENABLE=1"), &notes); /* alone: automatic */
    assert_same(&p, &standard);
    p = read_all(MO_POSTFETCH_DEFAULT, SET("ENABLE="), &notes); /* empty: not set */
    assert_same(&p, &standard);
    assert_int_equal(notes.count, 0);
}

static void every_variable_counts(void **state)
{
    (void)state;
    mo_postfetch_notes notes;
    const mo_postfetch p = read_all(MO_POSTFETCH_DEFAULT,
                                    SET("ENABLE=1", "BLOCK_ON_MISS=0", "MAX_TRANSFERS=4", "SCRATCHPAD_MB=700",
                                        "USE_DEDICATED_STREAMS=0", "CPU_LIMIT=3", "DEBUG=1"),
                                    &notes);
    const mo_postfetch wanted = {
        .mode = MO_POSTFETCH_AUTO, .max_transfers = 4, .scratch_mb = 700, .cpu_limit = 3, .debug = true};
    assert_same(&p, &wanted);
    assert_int_equal(notes.count, 1); /* which of them an automatic mode has no use for */
    assert_non_null(strstr(notes.line[0], "auto"));
    assert_non_null(strstr(notes.line[0], "BLOCK_ON_MISS"));
    assert_non_null(strstr(notes.line[0], "CPU_LIMIT"));
    assert_null(strstr(notes.line[0], "DEBUG")); /* it tells what auto copies too */
    assert_null(strstr(notes.line[0], "SCRATCHPAD_MB"));
    /* the document's advice for a card of 4 GB */
    read_all(MO_POSTFETCH_DEFAULT, SET("ENABLE=1", "SCRATCHPAD_MB=700", "BLOCK_ON_MISS=1"), &notes);
    assert_int_equal(notes.count, 0);
    assert_true(read_all(MO_POSTFETCH_DEFAULT, SET("FORCE_CPU=1"), &notes).force_cpu);
    assert_int_equal(notes.count, 0);
    assert_int_equal(read_all(MO_POSTFETCH_DEFAULT, SET("ENABLE=0"), &notes).mode, MO_POSTFETCH_OFF);
    setenv("LLAMA_POSTFETCH_MAX_TRANSFERS", "5", 1); /* the process's own */
    mo_postfetch q;
    assert_int_equal(mo_postfetch_settings(MO_POSTFETCH_DEFAULT, NULL, NULL, &q, NULL, NULL), MO_OK);
    assert_int_equal(q.max_transfers, 5);
    unsetenv("LLAMA_POSTFETCH_MAX_TRANSFERS");
}

static void options_beat_the_environment(void **state)
{
    (void)state;
    mo_postfetch_notes notes;
    mo_postfetch p = read_all(MO_POSTFETCH_DOWN, SET("ENABLE=0"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_DOWN);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "`postfetch` down overrides LLAMA_POSTFETCH_ENABLE=0"));
    p = read_all(MO_POSTFETCH_EXPERT, SET("FORCE_CPU=1", "MAX_TRANSFERS=2"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_EXPERT);
    assert_false(p.force_cpu);
    assert_int_equal(p.max_transfers, 2); /* not what the option is about */
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "FORCE_CPU"));
    p = read_all(MO_POSTFETCH_OFF, SET("ENABLE=1", "BLOCK_ON_MISS=0", "CPU_LIMIT=2"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_OFF);
    assert_int_equal(notes.count, 2);
    assert_non_null(strstr(notes.line[1], "BLOCK_ON_MISS"));
    assert_non_null(strstr(notes.line[1], "CPU_LIMIT"));
    p = read_all(MO_POSTFETCH_AUTO, SET("ENABLE=1"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_AUTO);
    assert_int_equal(notes.count, 0);
}

static void the_mode_is_chosen_by_environment(void **state)
{
    (void)state;
    mo_postfetch_notes notes;
    mo_postfetch p = read_all(MO_POSTFETCH_DEFAULT, SET("MODE=down", "CPU_LIMIT=3"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_DOWN);
    assert_int_equal(notes.count, 0);
    assert_int_equal(read_all(MO_POSTFETCH_DEFAULT, SET("MODE=expert", "ENABLE=1"), &notes).mode,
                     MO_POSTFETCH_EXPERT);
    assert_int_equal(read_all(MO_POSTFETCH_DEFAULT, SET("MODE=auto"), &notes).mode, MO_POSTFETCH_AUTO);
    assert_int_equal(read_all(MO_POSTFETCH_DEFAULT, SET("MODE="), &notes).mode, MO_POSTFETCH_AUTO);
    assert_int_equal(notes.count, 0);
    p = read_all(MO_POSTFETCH_DEFAULT, SET("MODE=down", "ENABLE=0"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_OFF);
    assert_non_null(strstr(notes.line[0], "LLAMA_POSTFETCH_ENABLE=0 overrides LLAMA_POSTFETCH_MODE=down"));
    p = read_all(MO_POSTFETCH_EXPERT, SET("MODE=down"), &notes);
    assert_int_equal(p.mode, MO_POSTFETCH_EXPERT);
    assert_non_null(strstr(notes.line[0], "`postfetch` overrides LLAMA_POSTFETCH_MODE=down"));
    char *const environment[] = {"LLAMA_POSTFETCH_MODE=down", NULL};
    notes.count = 0;
    mo_postfetch_unknown(environment, &notes);
    assert_int_equal(notes.count, 0);
}

static void idle_settings_are_told(void **state)
{
    (void)state;
    mo_postfetch_notes notes;
    read_all(MO_POSTFETCH_DEFAULT, SET("ENABLE=0", "SCRATCHPAD_MB=500"), &notes);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "is off"));
    read_all(MO_POSTFETCH_DEFAULT, SET("FORCE_CPU=1", "MAX_TRANSFERS=4"), &notes);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "FORCE_CPU"));
    read_all(MO_POSTFETCH_DOWN, SET("CPU_LIMIT=0"), &notes);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "CPU_LIMIT=0"));
    notes.count = 0;
    char *const environment[] = {"PATH=/bin", "LLAMA_POSTFETCH_ENABLE=1", "LLAMA_POSTFETCH_ENABLED=1",
                                 "LLAMA_POSTFETCH_", NULL};
    mo_postfetch_unknown(environment, &notes);
    assert_int_equal(notes.count, 2);
    assert_non_null(strstr(notes.line[0], "LLAMA_POSTFETCH_ENABLED "));
    for (int i = 0; i < 20; i++) { /* no more than there is space for */
        mo_postfetch_unknown(environment, &notes);
    }
    assert_int_equal(notes.count, MO_POSTFETCH_NOTES);
}

static void bad_values_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *name;
    } bad[] = {
        {"ENABLE=yes", "ENABLE=yes"},
        {"ENABLE=2", "0 or 1"},
        {"FORCE_CPU=-1", "FORCE_CPU"},
        {"BLOCK_ON_MISS=1 ", "BLOCK_ON_MISS"},
        {"MAX_TRANSFERS=0", "from 1 to"},
        {"MAX_TRANSFERS=8x", "MAX_TRANSFERS"},
        {"SCRATCHPAD_MB=-5", "SCRATCHPAD_MB"},
        {"SCRATCHPAD_MB=99999999999999999999", "SCRATCHPAD_MB"},
        {"USE_DEDICATED_STREAMS=on", "USE_DEDICATED_STREAMS"},
        {"CPU_LIMIT=-1", "CPU_LIMIT"},
        {"DEBUG=verbose", "DEBUG"},
        {"MODE=up", "must be down, expert or auto"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mo_postfetch p, before;
        mo_error err;
        memset(&p, 0x5A, sizeof p);
        memcpy(&before, &p, sizeof p);
        assert_int_equal(
            mo_postfetch_settings(MO_POSTFETCH_DEFAULT, look_up, SET(bad[i].entry), &p, NULL, &err),
            MO_EINVAL);
        if (!strstr(err.detail, bad[i].name)) {
            fail_msg("%s is not in: %s", bad[i].name, err.detail);
        }
        assert_memory_equal(&p, &before, sizeof p);
    }
}

static mo_postfetch_capacity sized(const mo_postfetch *s, const mo_postfetch_facts *f,
                                   mo_postfetch_notes *notes)
{
    mo_postfetch_capacity capacity;
    mo_error err;
    *notes = (mo_postfetch_notes){0};
    if (mo_postfetch_size(s, f, &capacity, notes, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return capacity;
}

/* Qwen3-Next on a gpu with 4 GiB: ten experts of a top-10, of which eight travel at once. */
static void scratch_is_sized(void **state)
{
    (void)state;
    mo_postfetch_notes notes;
    mo_error err;
    mo_postfetch s = read_all(MO_POSTFETCH_DEFAULT, SET("NOTHING=0"), &notes);
    mo_postfetch_facts f = {
        .vram_free_bytes = 4096 * MIB, .down_bytes = MIB, .expert_bytes = 2 * MIB, .used = 10};
    mo_postfetch_capacity capacity = sized(&s, &f, &notes);
    assert_int_equal(capacity.transfers, 8);
    assert_int_equal(capacity.scratch_bytes, 16 * MIB);
    assert_int_equal(notes.count, 0);
    s.mode = MO_POSTFETCH_DOWN;
    assert_int_equal(sized(&s, &f, &notes).scratch_bytes, 8 * MIB);
    f.used = 4;
    capacity = sized(&s, &f, &notes);
    assert_int_equal(capacity.transfers, 4);
    assert_int_equal(capacity.scratch_bytes, 4 * MIB);
    s.scratch_mb = 3; /* given, and too small for all */
    capacity = sized(&s, &f, &notes);
    assert_int_equal(capacity.transfers, 3);
    assert_int_equal(capacity.scratch_bytes, 3 * MIB);
    assert_int_equal(notes.count, 1);
    s.scratch_mb = 700; /* the document's advice, more than a tenth of 4 GiB */
    capacity = sized(&s, &f, &notes);
    assert_int_equal(capacity.scratch_bytes, 700 * MIB);
    assert_int_equal(capacity.transfers, 4);
    s.mode = MO_POSTFETCH_AUTO;
    s.scratch_mb = 1; /* there the rates decide what crosses */
    assert_int_equal(mo_postfetch_size(&s, &f, &capacity, NULL, &err), MO_OK);
    s.mode = MO_POSTFETCH_EXPERT;
    assert_int_equal(mo_postfetch_size(&s, &f, &capacity, NULL, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "the minimum is 2"));
    s.scratch_mb = 0;
    f.vram_free_bytes = 50 * MIB; /* a tenth holds two */
    capacity = sized(&s, &f, &notes);
    assert_int_equal(capacity.transfers, 2);
    assert_true(capacity.scratch_bytes <= f.vram_free_bytes / 10);
    assert_int_equal(notes.count, 1);
    s.mode = MO_POSTFETCH_AUTO; /* nobody asked for anything: rates decide, and there is nothing to tell */
    assert_int_equal(sized(&s, &f, &notes).transfers, 2);
    assert_int_equal(notes.count, 0);
    f.vram_free_bytes = 15 * MIB;
    assert_int_equal(sized(&s, &f, &notes).transfers, 0);
    assert_int_equal(notes.count, 0);
    s.mode = MO_POSTFETCH_EXPERT;
    f.vram_free_bytes = 50 * MIB;
    f.expert_bytes = MIB / 8;
    s.scratch_mb = 1;
    f.used = 10;
    s.max_transfers = 10;
    sized(&s, &f, &notes);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "scratch of 1 MiB holds 8 transfers at once instead of 10"));
    s.scratch_mb = 0;
    s.max_transfers = 8;
    f.vram_free_bytes = MIB; /* less than a MiB is not none */
    f.expert_bytes = MIB / 20;
    sized(&s, &f, &notes);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "KiB holds 2 transfers"));
    f.expert_bytes = 2 * MIB;
    f.vram_free_bytes = 15 * MIB;
    f.used = 4;
    capacity = sized(&s, &f, &notes);
    assert_true(capacity.scratch_bytes == 0 && capacity.transfers == 0);
    assert_int_equal(notes.count, 1);
    assert_non_null(strstr(notes.line[0], "is off"));
    s.force_cpu = true;
    capacity = sized(&s, &f, &notes);
    assert_true(capacity.scratch_bytes == 0 && capacity.transfers == 0 && notes.count == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_documents),
        cmocka_unit_test(every_variable_counts),
        cmocka_unit_test(options_beat_the_environment),
        cmocka_unit_test(idle_settings_are_told),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(the_mode_is_chosen_by_environment),
        cmocka_unit_test(scratch_is_sized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
