/* Files of hosts: what they say, what is wrong with them and on which line, and that no bytes do harm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "plan/hosts.h"
#include "random.h"

static mo_hosts hosts; /* large */

static mo_status read_text(const char *text, mo_error *err)
{
    return mo_hosts_read("hosts.txt", text, strlen(text), &hosts, err);
}

static void test_a_line_is_a_host_and_defaults_hold_from_where_they_stand(void **state)
{
    (void)state;
    mo_error err = {0};
    check_status(
        read_text("# two desktops\n"
                  "\n"
                  "old ram=16G\n"
                  "default\tcpu=25GB/s disk=2GB/s link=10Gbit/s latency=30us   # from here on\r\n"
                  "anna ram=64G\n"
                  "  bert ram=512M cpu=18.5GB/s vram=24G gpu=1TB/s next-link=1GB/s next-latency=0.5ms\n"
                  "carl ram=1024 latency=800ns message=3us",
                  &err),
        &err);
    assert_int_equal(hosts.count, 4);
    const mo_host *old = &hosts.host[0], *anna = &hosts.host[1], *bert = &hosts.host[2],
                  *carl = &hosts.host[3];
    assert_string_equal(old->name, "old");
    assert_true(old->cpu_bytes_s == 12e9 && old->disk_bytes_s == 0.5e9 && old->vram_bytes == 0);
    assert_true(old->lead.bytes_s == MO_NETWORK_RATE_GUESS &&
                old->lead.latency_s == MO_NETWORK_LATENCY_GUESS);
    assert_int_equal(anna->ram_bytes, 64LL << 30);
    assert_true(anna->cpu_bytes_s == 25e9 && anna->lead.bytes_s == 1.25e9 && anna->next_bytes_s == 0);
    assert_int_equal(bert->ram_bytes, 512LL << 20);
    assert_true(bert->cpu_bytes_s == 18.5e9 && bert->gpu_bytes_s == 1e12 && bert->next_bytes_s == 1e9);
    assert_int_equal(bert->vram_bytes, 24LL << 30);
    assert_int_equal(carl->ram_bytes, 1024);
    assert_true(carl->lead.latency_s > 799e-9 && carl->lead.latency_s < 801e-9 && carl->disk_bytes_s == 2e9);
}

static void test_what_is_wrong_is_said_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "no host"},
        {"# nobody\n\n", "no host"},
        {"default ram=1G\n", "no host"},
        {"a\n", "line 1: a has no ram="},
        {"a ram=1G\nb cpu=1GB/s\n", "line 2: b has no ram="},
        {"a ram=0\n", "line 1: a has no ram="},
        {"a ram=\n", "line 1: ram= is not a size"},
        {"a ram=-1G\n", "is not a size"},
        {"a ram=1e9\n", "is not a size"},
        {"a ram=0x10\n", "is not a size"},
        {"a ram=nan\n", "is not a size"},
        {"a ram=inf\n", "is not a size"},
        {"a ram=64GB\n", "as in ram=64G"},
        {"a ram=99999999999999999999999999T\n", "at most 1 EiB"},
        {"a ram=1G cpu=25\n", "as in cpu=25GB/s"},
        {"a ram=1G cpu=0GB/s\n", "a rate above"},
        {"a ram=1G link=10\n", "as in link=10Gbit/s"},
        {"a ram=1G link=10gbit\n", "as in link=10Gbit/s"},
        {"a ram=1G disk=1Gbit/s\n", "line 1: disk=1Gbit/s"},
        {"a ram=1G latency=30\n", "as in latency=30us"},
        {"a ram=1G latency=11s\n", "as in latency=30us"},
        {"a ram=1G latency=100000ms\n", "at most 10 s"},
        {"a ram=1G latency=..us\n", "as in latency=30us"},
        {"a ram=1G speed=3\n", "unknown word \"speed=3\"; use ram="},
        {"a ram=1G fast\n", "unknown word \"fast\""},
        {"a ram=1G =3\n", "unknown word"},
        {"ram=1G\n", "line 1 starts with \"ram=1G\""},
        {"\n\na ram=1G\x01\n", "line 3 contains a character"},
        {"a\xff ram=1G\n", "line 1 contains a character"},
        {"a12345678901234567890123456789012345678901234567890123456789012345 ram=1G\n", "longer than 63"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_error err = {0};
        if (read_text(cases[i].text, &err) != MO_EFORMAT) {
            fail_msg("case %zu is accepted: %s", i, cases[i].text);
        }
        check_says(&err, "hosts.txt: ");
        check_says(&err, cases[i].words);
    }
    mo_error err = {0};
    assert_int_equal(mo_hosts_read("h", "a ram=1\0", 8, &hosts, &err), MO_EFORMAT); /* a byte of zero */
    assert_int_equal(mo_hosts_load("/nowhere/hosts.txt", &hosts, &err), MO_ENOENT);
}

static void test_there_are_at_most_256(void **state)
{
    (void)state;
    mo_error err = {0};
    char text[300 * 16];
    size_t used = 0;
    for (int i = 0; i < 257; i++) {
        if (i == 256) {
            check_status(read_text(text, &err), &err);
            assert_int_equal(hosts.count, 256);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "h%d ram=1G\n", i);
    }
    assert_int_equal(read_text(text, &err), MO_EFORMAT);
    check_says(&err, "line 257: more than 256 hosts");
}

static void test_what_is_saved_is_read_again(void **state)
{
    (void)state;
    mo_error err = {0};
    char path[] = "/tmp/moraine-hosts-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    static mo_hosts made;
    made = (mo_hosts){.count = 3};
    made.host[0] = (mo_host){.name = "a b=c\xfc",
                             .ram_bytes = 123456789,
                             .cpu_bytes_s = 12.5e9,
                             .disk_bytes_s = 1e9,
                             .gpu_bytes_s = 200e9,
                             .lead = {31e-6, 1.1e9, 2e-6},
                             .next_latency_s = 1e-6,
                             .next_bytes_s = 5e9};
    made.host[1] = made.host[0];
    memcpy(made.host[1].name, "default", 8);
    made.host[2] = made.host[0];
    memcpy(made.host[2].name, "", 1);
    made.host[2].vram_bytes = 1LL << 33;
    check_status(mo_hosts_save(path, &made, &err), &err);
    check_status(mo_hosts_load(path, &hosts, &err), &err);
    unlink(path);
    assert_int_equal(hosts.count, 3);
    assert_string_equal(hosts.host[0].name, "a_b_c_");
    assert_string_equal(hosts.host[1].name, "Default");
    assert_string_equal(hosts.host[2].name, "host");
    assert_int_equal(hosts.host[0].ram_bytes, 123456789);
    assert_int_equal(hosts.host[2].vram_bytes, 1LL << 33);
    assert_true(hosts.host[0].cpu_bytes_s == 12.5e9);
    assert_true(hosts.host[0].lead.latency_s > 30.9e-6 && hosts.host[0].lead.latency_s < 31.1e-6);
    assert_true(hosts.host[0].next_bytes_s > 4.99e9 && hosts.host[0].next_bytes_s < 5.01e9);
}

static void check_wire(const mo_network_wire *w, double bytes_s, double latency_s)
{
    assert_true(fabs(w->bytes_s - bytes_s) < 1e-9 * bytes_s && fabs(w->latency_s - latency_s) < 1e-12);
}

/* The way between two hosts is as bad as its worse end, unless the file says more. */
static void test_both_ends_of_a_way_count(void **state)
{
    (void)state;
    mo_error err = {0};
    mo_division_rank ranks[3];
    check_status(read_text("a ram=1G link=10Gbit/s latency=30us\n"
                           "b ram=1G link=25Gbit/s latency=20us next-link=40Gbit/s next-latency=5us\n"
                           "c ram=1G link=1Gbit/s latency=90us\n",
                           &err),
                 &err);
    mo_hosts_ranks(&hosts, ranks);
    check_wire(&ranks[1].lead, 1.25e9, 30e-6);
    check_wire(&ranks[2].lead, 0.125e9, 90e-6);
    check_wire(&ranks[0].next, 1.25e9, 30e-6);
    check_wire(&ranks[1].next, 5e9, 5e-6);
    check_wire(&ranks[2].next, 0.125e9, 90e-6);
}

static void test_kept_wires_are_found_by_the_names_of_machines(void **state)
{
    (void)state;
    mo_error err = {0};
    mo_division_rank ranks[3] = {{.ram_bytes = 7}};
    char folder[] = "/tmp/moraine-cache-XXXXXX", path[256];
    const char *const two[] = {"a", "b"}, *const turned[] = {"a", "host", "b"}, *const other[] = {"b", "a"},
                      *const unknown[] = {"a", "d"}, *const twice[] = {"a", "b", "b"},
                      *const nameless[] = {"a", ""};
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    assert_false(mo_hosts_wires(ranks, two, 2)); /* nothing is kept */
    check_status(read_text("a ram=1G link=10Gbit/s latency=30us next-latency=7us next-link=2Gbit/s\n"
                           "b ram=1G link=25Gbit/s latency=40us next-latency=8us next-link=4Gbit/s\n"
                           "host ram=1G link=1Gbit/s latency=90us next-latency=9us next-link=6Gbit/s\n",
                           &err),
                 &err);
    check_status(mo_hosts_path(path, sizeof path, &err), &err);
    check_status(mo_hosts_save(path, &hosts, &err), &err);
    assert_false(mo_hosts_wires(ranks, unknown, 2));
    assert_false(mo_hosts_wires(ranks, other, 2)); /* from another first one everything is another way */
    assert_false(mo_hosts_wires(ranks, twice, 3));
    assert_false(mo_hosts_wires(ranks, nameless, 2));
    assert_true(ranks[1].lead.bytes_s == 0);
    assert_true(mo_hosts_wires(ranks, two, 2)); /* fewer than were measured */
    check_wire(&ranks[1].lead, 1.25e9, 40e-6);
    check_wire(&ranks[0].next, 0.25e9, 7e-6);
    check_wire(&ranks[1].next, 1.25e9, 40e-6); /* b's next was c; now it is a */
    assert_true(mo_hosts_wires(ranks, turned, 3));
    check_wire(&ranks[1].lead, 0.125e9, 90e-6);
    check_wire(&ranks[2].lead, 1.25e9, 40e-6);
    check_wire(&ranks[0].next, 0.125e9, 90e-6);
    assert_int_equal(ranks[0].ram_bytes, 7);
    unlink(path);
    snprintf(path, sizeof path, "%s/moraine", folder);
    rmdir(path);
    rmdir(folder);
}

/* A good text with bytes changed, doubled and cut away: refused with a sentence, or read as something that makes sense. */
static void test_no_bytes_do_harm(void **state)
{
    (void)state;
    static const char good[] =
        "default cpu=25GB/s link=10Gbit/s latency=30us\nanna ram=64G vram=8G\nbert ram=32G #x\n";
    uint64_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        char text[2 * sizeof good];
        size_t length = sizeof good - 1;
        mo_error err = {0};
        memcpy(text, good, sizeof good);
        for (int k = (int)(random_next(&seed) % 4); k >= 0; k--) {
            const size_t at = random_next(&seed) % length;
            if (random_next(&seed) % 4 == 0) {
                length = at + 1;
            }
            text[at] = random_next(&seed) % 2 ? good[random_next(&seed) % (sizeof good - 1)]
                                              : (char)random_next(&seed);
        }
        if (mo_hosts_read("h", text, length, &hosts, &err) != MO_OK) {
            assert_int_equal(err.status, MO_EFORMAT);
            continue;
        }
        assert_true(hosts.count > 0);
        for (int i = 0; i < hosts.count; i++) {
            const mo_host *h = &hosts.host[i];
            assert_true(h->ram_bytes > 0 && h->cpu_bytes_s > 0 && h->lead.bytes_s > 0 &&
                        h->lead.latency_s >= 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_is_a_host_and_defaults_hold_from_where_they_stand),
        cmocka_unit_test(test_what_is_wrong_is_said_with_its_line),
        cmocka_unit_test(test_there_are_at_most_256),
        cmocka_unit_test(test_what_is_saved_is_read_again),
        cmocka_unit_test(test_both_ends_of_a_way_count),
        cmocka_unit_test(test_kept_wires_are_found_by_the_names_of_machines),
        cmocka_unit_test(test_no_bytes_do_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
