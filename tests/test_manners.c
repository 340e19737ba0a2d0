/* How the program behaves towards people in a hurry and with bad luck: signals, checks before work, exit codes, files that
 * cannot be written, options that do nothing, and what it says about them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "crowd.h"
#include "program.h"
#include "sanitized.h"

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* ---- Signals ----------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Starts "BEFORE moraine ARGUMENTS" in the folder, without a shell between; stdin is a pipe that nobody writes. */
static pid_t start_behind(const char *before, const char *arguments)
{
    int input[2];
    assert_int_equal(pipe(input), 0);
    const pid_t child = fork();
    if (child == 0) {
        char command[1024];
        snprintf(command, sizeof command, "exec %s '%s' %s >out 2>err", before, MO_PROGRAM, arguments);
        dup2(input[0], 0);
        if (chdir(folder) == 0) {
            execl("/bin/sh", "sh", "-c", command, NULL);
        }
        _exit(127);
    }
    close(input[0]);
    fcntl(input[1], F_SETFD, FD_CLOEXEC); /* stays open: the end of the test closes it */
    return child;
}

static pid_t start(const char *arguments)
{
    return start_behind("", arguments);
}

/* Does the process catch the signal? */
static bool catches(pid_t child, int number)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)child);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "SigCgt:", 7) == 0) {
            caught = strtoull(line + 7, NULL, 16);
        }
    }
    if (f) {
        fclose(f);
    }
    return caught >> (number - 1) & 1;
}

/* Has the process ended? It is still there to be waited for. */
static bool ended(pid_t child)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
}

/* Waits until it does: a loaded machine takes its time to begin. False: it has ended meanwhile. */
static bool await_catching(pid_t child, int number)
{
    bool catching = catches(child, number);
    for (int i = 0; i < 6000 && !catching && !ended(child); i++) {
        usleep(10000);
        catching = catches(child, number); /* asked once: one that is about to end does so no more */
    }
    assert_true(catching || ended(child));
    return !ended(child);
}

/* Has the process mapped a file of that name? */
static bool maps(pid_t child, const char *name)
{
    char path[64], line[1024];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)child);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        found |= strstr(line, name) != NULL;
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* Seconds from the signal to the end, whose code is 128 + the signal; TOO_LATE: it was meant to be long, but has ended by itself, as
 * where a machine that is busy had no core for who sends the signal. */
#define TOO_LATE 1e9
static double end_after(const char *arguments, double after, int number)
{
    const pid_t child = start(arguments);
    int status;
    if (await_catching(child, number)) {
        usleep((useconds_t)(after * 1e6));
    }
    if (ended(child)) {
        assert_int_equal(waitpid(child, &status, 0), child);
        slurp("err", errors, sizeof errors);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fail_msg("%s ended by itself: status %x, %s", arguments, (unsigned)status, errors);
        }
        return TOO_LATE;
    }
    const double sent = now();
    assert_int_equal(kill(child, number), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    const double took = now() - sent;
    slurp("err", errors, sizeof errors);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return TOO_LATE;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 128 + number) {
        fail_msg("%s: status %x, %s", arguments, (unsigned)status, errors);
    }
    return took;
}

/* Within half a second where nothing else has the cores, and where others want them as many times as much as there are: one of eight
 * times will do. A sanitizer takes its own time to end, and only the end counts then. */
static void expect_end(const char *arguments, double after, int number)
{
    double took = TOO_LATE, most = 0;
    for (int i = 0; i < 8 && took > most; i++) {
        took = end_after(arguments, after, number);
        most = SANITIZED ? TOO_LATE / 2 : 0.5 * crowd();
    }
    if (took > most) {
        fail_msg("%s: %s, %.2f s", arguments, took < TOO_LATE ? "took long to end" : "ended by itself", took);
    }
}

static void make_text(const char *name, int times)
{
    static const char words[] = "Once upon a time a fox lived in a forest with a hedgehog and an owl. ";
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < times; i++) {
        fputs(words, f);
    }
    assert_int_equal(fclose(f), 0);
}

/* Every command that can be long, at settings that make its steps, windows or files long. */
static void signals_end_every_command(void **state)
{
    (void)state;
    static const char *const long_ones[] = {
        "run -p 'Tell me a story.' --ignore-eos -c 100000",
        "run -f text -c 400000 -b 65536 --raw",
        "run",
        "eval --text text",
        "eval --text text -w 30000 -b 30000",
        "eval --text text --device sim",
        "bench --prefill 100000 --rounds 1",
        "bench --prefill 100000 --batch 65536 --rounds 1",
        "bench --decode 4000 --prefill 0 --ram 51M --rounds 64",
        "bench --prefill 30000 --device sim --rounds 64",
        "bench --parallel 8 --prefill 4000 --decode 200 --rounds 64",
        "bench --parallel 40 --prefill 16 --decode 4000 --rounds 64",
        "run -p 'Tell me a story.' --ignore-eos -c 100000 --mmap --kv f32",
        "replay trace --step 1 --budget 10%,15%,20%,25%,30%,40%,50%,60%,70%,80%",
        "probe --dry",
        "synth qwen3-30b-a3b --layers 6 --threads 1 -o made",
        "quantize made.gguf smaller.gguf --rest q2_k --embedding q3_k --threads 1",
        "tokenize huge",
        "chat -c 100000 --max-tokens -1",
    };
    make_text("text", 20000);
    make_text("huge", 1000000);
    make_text("short", SANITIZED ? 300 : 2000); /* what works on it is slower as well */
    assert_int_equal(run("trace --text short -o trace"), 0);
    assert_int_equal(run(SANITIZED ? "synth smollm2-135m --layers 2 --type f32 -o made.gguf"
                                   : "synth smollm2-135m --layers 12 --type f32 -o made.gguf"),
                     0);
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++) {
        const bool chat = strncmp(long_ones[i], "chat", 4) == 0;
        if (!SANITIZED) { /* which take long to begin and to end */
            expect_end(long_ones[i], 0.7, i % 2 && !chat ? SIGINT : SIGTERM);
        }
        expect_end(long_ones[i], 0.3, i % 2 || chat ? SIGTERM : SIGINT);
    }
    assert_false(exists("made")); /* nor what it was written as */
    assert_false(exists("made.moraine-part"));
    assert_false(exists("smaller.gguf"));
    assert_false(exists("smaller.gguf.moraine-part"));
}

/* The second one does not wait, and leaves no more behind than the first. */
static void a_second_signal_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char *const writers[] = {
        "synth qwen3-30b-a3b --layers 6 --threads 1 -o twice",
        "quantize source.gguf twice --rest q2_k --embedding q3_k --threads 1",
    };
    assert_int_equal(run(SANITIZED ? "synth smollm2-135m --layers 2 --type f32 -o source.gguf"
                                   : "synth smollm2-135m --layers 12 --type f32 -o source.gguf"),
                     0);
    for (size_t i = 0; i < 4; i++) {
        const int number = i % 2 ? SIGTERM : SIGINT;
        const pid_t child = start(writers[i / 2]);
        int status;
        for (int waited = 0; waited < 60000 && !exists("twice.moraine-part"); waited++) {
            usleep(1000);
        }
        assert_true(exists("twice.moraine-part"));
        assert_int_equal(kill(child, number), 0);
        usleep(1000);
        kill(child, number);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 128 + number);
        assert_false(exists("twice") || exists("twice.moraine-part"));
    }
}

/* Nothing half written stays behind, whoever closes the terminal. */
static void a_lost_terminal_ends_every_command(void **state)
{
    (void)state;
    static const char *const long_ones[] = {
        "run -p 'Tell me a story.' --ignore-eos -c 100000 </dev/null",
        "bench --prefill 100000 --rounds 1",
        "synth qwen3-30b-a3b --layers 6 --threads 1 -o hung",
        "chat -c 100000 --max-tokens -1",
    };
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++) {
        expect_end(long_ones[i], 0.3, SIGHUP);
    }
    assert_false(exists("hung") || exists("hung.moraine-part"));
}

/* Who started it so wants it to outlive Ctrl-C. */
static void an_ignored_signal_stays_ignored(void **state)
{
    (void)state;
    int status;
    signal(SIGINT, SIG_IGN);
    const pid_t child = start("run -p 'Tell me a story.' --ignore-eos -c 100000");
    signal(SIGINT, SIG_DFL);
    await_catching(child, SIGTERM);
    usleep(300000);
    assert_int_equal(kill(child, SIGINT), 0);
    usleep(500000);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
}

/* Opening a pipe that nobody reads waits, and what cannot be kept holds nobody up. */
static void trace_into_an_unread_pipe_ends(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/unread", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_end("trace -p hi -n 3 -o unread", 1.0, SIGINT);
    expect_end("trace -p hi -n 3 -o unread", 1.0, SIGTERM);
}

/* What was recorded until the signal is written, and can be replayed. */
static void trace_keeps_what_it_has(void **state)
{
    (void)state;
    make_text("text", 20000);
    for (int i = 0; i < 2; i++) {
        int code = 1;
        for (double after = 1.5; after < 30 && code; after *= 2) { /* until a step has ended by then */
            expect_end(i ? "trace --text text -b 64 -o kept2.trace --device sim"
                         : "trace --text text -b 64 -o kept.trace",
                       after, i ? SIGTERM : SIGINT);
            code = run(i ? "replay kept2.trace --budget 50% --policy lru"
                         : "replay kept.trace --budget 50% --policy lru");
        }
        assert_int_equal(code, 0);
    }
}

/* ---- A file that changes ----------------------------------------------------------------------- */

/* A sentence and exit code 1, not a crash. */
static void a_mapped_file_is_cut_short(void **state)
{
    (void)state;
    char path[256];
    int status;
    snprintf(path, sizeof path, "%s/cut.gguf", folder);
    assert_int_equal(run("synth smollm2-135m --layers 2 -o cut.gguf --force"), 0);
    const pid_t child = start("bench cut.gguf --mmap --prefill 0 --decode 4000 --rounds 64");
    for (int i = 0; i < 6000 && !maps(child, "cut.gguf"); i++) {
        usleep(10000);
    }
    usleep(SANITIZED ? 2000000 : 700000);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    slurp("err", errors, sizeof errors);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 ||
        !strstr(errors, "cut.gguf: the file changed size while it was mapped, from")) {
        fail_msg("status %x, %s", (unsigned)status, errors);
    }
    assert_int_equal(remove(path), 0);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static double number_after(const char *key)
{
    const char *at = strstr(output, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* A context and a batch that are used to their ends take what was planned: not more, and not much less. How much of the program's file
 * the system keeps in memory beside that is not the same in every run: a MiB or two of it may be more than usual. */
static void peak_memory_is_what_was_planned(void **state)
{
    (void)state;
    static const struct {
        const char *model, *layers, *limit;
    } cases[] = {
        {"smollm2-135m", "12", ""},     {"olmoe-1b-7b", "1", ""},   {"olmoe-1b-7b", "1", "--ram 240M"},
        {"qwen1.5-moe-a2.7b", "1", ""}, {"qwen3-30b-a3b", "1", ""}, {"qwen3-30b-a3b", "1", "--ram 380M"},
        {"gemma-4-26b-a4b", "1", ""},
    };
    if (SANITIZED) {
        return; /* it would be the sanitizer's memory */
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        int status;
        struct rusage usage;
        snprintf(command, sizeof command, "synth %s --layers %s --type q4_0 -o peak.gguf --force",
                 cases[i].model, cases[i].layers);
        assert_int_equal(run(command), 0);
        snprintf(command, sizeof command, "plan peak.gguf --json --device none --ctx 512 --batch 256 %s",
                 cases[i].limit);
        assert_int_equal(run(command), 0);
        const double planned = number_after("\"used_bytes\":");
        snprintf(command, sizeof command,
                 "bench peak.gguf --device none --ctx 512 --batch 256 --prefill 511 --decode 1 --rounds 1 %s",
                 cases[i].limit);
        const pid_t child = start(command);
        assert_int_equal(wait4(child, &status, 0, &usage), child);
        slurp("err", errors, sizeof errors);
        const double share = 1024.0 * (double)usage.ru_maxrss / planned;
        print_message("%s %s: %.0f MiB planned, %.1f %% used\n", cases[i].model, cases[i].limit,
                      planned / 1048576.0, 100.0 * share);
        const double most = 1.0 + 2.0 * 1048576.0 / planned;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || share > most || share < 0.85) {
            fail_msg("%s %s: %.0f bytes planned, %.3f of them used; %s", cases[i].model, cases[i].limit,
                     planned, share, errors);
        }
    }
    char path[256];
    snprintf(path, sizeof path, "%s/peak.gguf", folder);
    assert_int_equal(remove(path), 0);
}

/* The most memory of "BEFORE moraine ARGUMENTS", which succeeds. */
static double peak_of(const char *before, const char *arguments)
{
    int status;
    struct rusage usage;
    const pid_t child = start_behind(before, arguments);
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    slurp("out", output, sizeof output);
    slurp("err", errors, sizeof errors);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("%s: status %x, %s", arguments, (unsigned)status, errors);
    }
    return 1024.0 * (double)usage.ru_maxrss;
}

/* What such a group leaves to plans when the program has begun: three quarters of the rest (test_plan's
 * a_small_cgroup_leaves_three_quarters). Used to the end of context and batch. */
static void the_built_in_model_needs_less_than_80_mb(void **state)
{
    (void)state;
    const double peak = peak_of(
        "", SANITIZED ? "bench --device none --ram 48M --ctx 2048 --prefill 200 --decode 4 --rounds 1"
                      : "bench --device none --ram 48M --ctx 2048 --prefill 2000 --decode 16 --rounds 1");
    if (!SANITIZED) {
        print_message("%.1f MB\n", peak / 1e6);
        assert_true(peak < 80e6);
        assert_true(peak_of("", "run -q --device none -p 'Tell me a story.' </dev/null") < 80e6);
    }
}

/* The program sees the group where it looks for its own: in a mount namespace with other files there. */
static void an_80_mb_cgroup_runs_the_built_in_model(void **state)
{
    (void)state;
    static const char script[] = "set -e\n"
                                 "mount -t tmpfs none /sys/fs/cgroup\n"
                                 "cd /sys/fs/cgroup\n"
                                 "mkdir -p memory\n"
                                 "echo 80000000 | tee memory.max memory/memory.limit_in_bytes >/dev/null\n"
                                 "echo 8000000 | tee memory.current memory/memory.usage_in_bytes >/dev/null\n"
                                 "cd - >/dev/null\n"
                                 "exec \"$@\"\n";
    write_file("grouped.sh", script, sizeof script - 1);
    assert_int_equal(run("--version && { unshare -rm sh grouped.sh true || echo no namespace; }"), 0);
    if (strstr(output, "no namespace")) {
        print_message("not tested: no mount namespace for the test's files: %s", errors);
        skip();
    }
    peak_of("unshare -rm sh grouped.sh", "plan --device none");
    assert_non_null(strstr(output, "the memory cgroup has 68.7 MiB"));
    const double peak =
        peak_of("unshare -rm sh grouped.sh", "run -q --device none -p 'Tell me a story.' </dev/null");
    assert_true(strlen(output) > 10);
    assert_true(SANITIZED || peak < 80e6);
}

/* ---- The doctor -------------------------------------------------------------------------------- */

/* The exit code says whether something was found. */
static void doctor_says_whether_something_is_wrong(void **state)
{
    (void)state;
    const int code = run("doctor --device none --json");
    assert_non_null(strstr(output, "\"findings\""));
    assert_int_equal(code, strstr(output, "\"wrong\": true") || strstr(output, "\"wrong\":true") ? 1 : 0);
    assert_int_equal(run("doctor --device none"), code);
    assert_non_null(strstr(output, code ? "that slow" : "No problems found"));
    assert_int_equal(run("doctor --help"), 0);
    assert_non_null(strstr(output, "Exit code 0"));
    expect_failure("doctor nosuch.gguf", 1, "nosuch.gguf");
    expect_failure("doctor --device none x y", 2, "doctor");
    expect_failure("doctor --device nosuch", 2, "\"nosuch\" is not a device");
}

/* ---- Exit codes -------------------------------------------------------------------------------- */

/* What can be seen from the options alone is wrong usage. */
static void wrong_usage_is_2(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *words;
    } wrong[] = {
        {"run -p x --temp -1", "--temp -1: expected a number of at least 0"},
        {"run -p x --top-p 2", "--top-p 2: expected a number above 0, at most 1"},
        {"run -p x --min-p 1.5", "--min-p 1.5: expected a number from 0 to 1"},
        {"run -p x --repeat-penalty 0", "--repeat-penalty 0: expected a number above 0"},
        {"run -p x --logit-bias x", "--logit-bias x"},
        {"run -p x --logit-bias 5:nan", "--logit-bias 5:nan"},
        {"run -p x --logit-bias 5:", "--logit-bias"},
        {"bench --synthetic nosuch", "nosuch"},
        {"run -p x --moe-hot-cache-layer-curve 7",
         "--moe-hot-cache-layer-curve 7: expected a number from 0 to 1"},
        {"run -p x --moe-hot-cache-update-rate 2",
         "--moe-hot-cache-update-rate 2: expected a number from 0 to 1"},
        {"run -p x --ram 0", "--ram 0"},
        {"eval --text x --ram 0", "--ram 0"},
        {"plan --ram 0", "--ram 0"},
        {"run -p x --raw --system y", "--system"},
        {"bench --prefill 0 --decode 4000 --ctx 300", "4000 tokens do not fit into --ctx 300"},
        {"bench --parallel 2 --prefill 200 --decode 200 --ctx 300", "400 tokens do not fit into --ctx 300"},
        {"bench --prefill 0 --decode 0", "nothing to measure"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_failure(wrong[i].arguments, 2, wrong[i].words);
    }
}

/* What only the files show is a failure. */
static void failures_are_1(void **state)
{
    (void)state;
    expect_failure("run /tmp -p x", 1, "is a directory");
    expect_failure("run nosuch.gguf -p x", 1, "no such file");
    expect_failure("run pebbles -p x", 1, "owner/repo");
    expect_failure("run 'Why is the sky blue?'", 1, "prompt with -p");
    expect_failure("run -m nosuch.gguf -p x", 1, "no such file");
    expect_failure("plan --model=nosuch.gguf", 1, "no such file");
    expect_failure("replay -m x", 2, "unknown");
    expect_failure("run nosuch.gguf 'Why is the sky blue?'", 1, "no such file");
    expect_failure("run nosuch.gguf Why is the sky blue?", 2, "quotes around the prompt");
    expect_failure("plan .", 1, "is a directory");
    expect_failure("doctor .", 1, "is a directory");
    expect_failure("quantize . x.gguf --rest q8_0", 1, "is a directory");
    expect_failure("quantize nosuch.gguf . --rest q8_0", 1, "the output .: is a directory");
    expect_failure("synth smollm2-135m --layers 1 -o nodir/x", 1, "the output nodir/x: its directory");
}

/* ---- Checks before the model is loaded ---------------------------------------------------------- */

/* One sentence, before loading: under this ceiling nothing can be loaded, and opening the model says that first. */
#define UNLOADABLE " --ram 1M "

static void what_the_header_settles(void **state)
{
    (void)state;
    expect_failure("run -q -p x" UNLOADABLE, 1, "1.00 MiB");
    assert_int_equal(run("synth smollm2-135m --layers 1 -o blank.gguf --force"), 0);
    expect_failure("run blank.gguf -p x" UNLOADABLE, 1, "has no vocabulary");
    expect_failure("chat blank.gguf" UNLOADABLE, 1, "has no vocabulary");
    expect_failure("eval blank.gguf --text blank.gguf" UNLOADABLE, 1, "has no vocabulary");
    expect_failure("trace blank.gguf -p x -o x" UNLOADABLE, 1, "has no vocabulary");
    expect_failure("bench blank.gguf --text blank.gguf" UNLOADABLE, 1, "has no vocabulary");
    make_text("long", 2000);
    expect_failure("run -q -f long -c 100" UNLOADABLE, 1, "but the context only 100");
    expect_failure("run -q -p x --logit-bias 5:1,4096:1" UNLOADABLE, 1,
                   "--logit-bias 4096: the vocabulary has 4096 tokens");
    expect_failure("run -q -p 'Hello there' -c 1", 1, "context");
    assert_null(strstr(errors, "1 to 1"));
    assert_int_equal(run("run -q -p x -n 1 -c 100000"), 0);
    assert_non_null(strstr(errors, "warning: --ctx 100000 exceeds"));
}

static void what_the_files_settle(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *words;
    } wrong[] = {
        {"trace --text x -o nodir/x", "--text x"},
        {"trace --text long -o nodir/x", "--output nodir/x: its directory"},
        {"trace --text long -o .", "is a directory"},
        {"probe -o nodir/x", "--output nodir/x: its directory"},
        {"eval --text x", "text x"},
        {"eval --text long --compare x", "--compare x"},
        {"eval --text long --save-logits nodir/x", "--save-logits nodir/x"},
        {"bench --text x", "--text x"},
        {"run -q -p x --moe-layer-perf-out nodir/x", "--moe-layer-perf-out nodir/x"},
        {"run -q -p x --profile nodir/x", "--profile nodir/x"},
        {"run -q -p x --warm-file nodir/x", "--warm-file nodir/x"},
        {"run -q -f x", "x: No such file"},
        {"run -q -f /dev/zero", "larger than 256 MiB"},
        {"eval --text long --save-logits astray",
         "--save-logits astray: is a symbolic link to a missing file"},
        {"plan --svg nodir/x", "--svg nodir/x: its directory"},
        {"bench --svg nodir/x", "--svg nodir/x: its directory"},
        {"replay short.trace --svg nodir/x", "--svg nodir/x: its directory"},
        {"replay short.trace --heat nodir/x", "--heat nodir/x: its directory"},
        {"replay short.trace --rates nodir/x", "--rates nodir/x"},
    };
    setenv("MORAINE_LOG", "error", 1);
    make_text("long", 100);
    assert_int_equal(run("--version; ln -s nowhere astray"), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char arguments[256];
        const bool loads =
            strncmp(wrong[i].arguments, "probe", 5) != 0 && strncmp(wrong[i].arguments, "replay", 6) != 0;
        snprintf(arguments, sizeof arguments, "%s%s", wrong[i].arguments, loads ? UNLOADABLE : "");
        assert_int_equal(run(arguments), 1);
        if (!strstr(errors, wrong[i].words)) {
            fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].arguments, errors, wrong[i].words);
        }
    }
    assert_false(exists("nodir") || exists("nowhere"));
    unsetenv("MORAINE_LOG");
}

/* ---- Files -------------------------------------------------------------------------------------- */

static void logits_are_saved_whole_or_not_at_all(void **state)
{
    (void)state;
    char command[512];
    write_file("ids", "1 2 3 4 5 6 7 8", 15);
    assert_int_equal(run("eval --tokens ids --save-logits rows"), 0);
    assert_true(exists("rows"));
    assert_int_equal(run("eval --tokens ids --save-logits /dev/full"), 1);
    assert_non_null(strstr(errors, "No space left"));
    /* A limit of the file size: 8 blocks of 512 bytes. */
    snprintf(command, sizeof command, "--version; ulimit -f 8; '%s' eval --tokens ids --save-logits cut",
             MO_PROGRAM);
    assert_int_equal(run(command), 1);
    assert_false(exists("cut"));
    assert_false(exists("cut.part"));
}

/* As cp does it: the link stays, and what it leads to is replaced. */
static void logits_are_saved_behind_a_link(void **state)
{
    (void)state;
    write_file("ids", "1 2 3 4 5 6 7 8", 15);
    assert_int_equal(run("eval --tokens ids --save-logits rows"), 0);
    assert_int_equal(
        run("--version; mkdir -p elsewhere; echo old >elsewhere/kept; ln -s elsewhere/kept link"), 0);
    assert_int_equal(run("eval --tokens ids --save-logits link"), 0);
    assert_int_equal(run("--version; test -L link && cmp elsewhere/kept rows"), 0);
    assert_false(exists("elsewhere/kept.part") || exists("link.part"));
}

/* The answer is there, and so are the results of others; one sentence says what is not, and the code that it failed. */
static void a_profile_that_cannot_be_written_fails_at_the_end(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *result;
    } commands[] = {
        {"run -q -p x -n 4 --temp 0", "\n"},
        {"run -q -p x -n 4 --temp 0 --json", "\"answer_tokens\""},
        {"eval --tokens ids", "perplexity"},
        {"bench --prefill 8 --decode 2 --rounds 2", "tokens/s"},
        {"bench --parallel 2 --prefill 8 --decode 2 --rounds 2", "tokens/s"},
    };
    char command[512];
    write_file("ids", "1 2 3 4 5 6 7 8", 15);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(command, sizeof command, "%s --profile off --moe-layer-perf-out /dev/full",
                 commands[i].arguments);
        assert_int_equal(run(command), 1);
        assert_non_null(strstr(output, commands[i].result));
        const char *said = strstr(errors, "/dev/full: no space left on the device");
        assert_non_null(said);
        assert_null(strstr(said + 1, "/dev/full"));
    }
    /* A limit of the file size: one block of 512 bytes. */
    snprintf(command, sizeof command,
             "--version; ulimit -f 1; '%s' run -q -p x -n 4 --profile off --moe-layer-perf-out use.json",
             MO_PROGRAM);
    assert_int_equal(run(command), 1);
    assert_non_null(strstr(errors, "use.json"));
    assert_false(exists("use.json") || exists("use.json.moraine-part"));
    assert_int_equal(run("run -q -p x -n 4 --profile off --moe-layer-perf-out use.json"), 0);
    assert_true(exists("use.json"));
}

/* Why, and that it is standard output. */
static void standard_output_that_cannot_be_written(void **state)
{
    (void)state;
    static const char *const commands[] = {"run -q -p x -n 4", "run -q -p x -n 4 --json",
                                           "chat -n 4 <question", "machine", "tokenize long"};
    make_text("long", 2000);
    write_file("question", "hi\n", 3);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[512];
        snprintf(command, sizeof command, "%s >/dev/full", commands[i]);
        assert_int_equal(run(command), 1);
        const char *said =
            strstr(errors, "moraine: cannot write to standard output: No space left on device\n");
        assert_non_null(said);
    }
    assert_int_equal(run("run -q -p 'Tell me a story.' -n 100 --ignore-eos | true"), 0); /* who went knows */
    assert_null(strstr(errors, "cannot write"));
}

/* What was closed is not taken by a file of the program's own, into which messages or results would go. */
static void standard_files_that_are_closed(void **state)
{
    (void)state;
    write_file("ids", "1 2 3 4 5 6 7 8", 15);
    assert_int_equal(run("eval --tokens ids --save-logits open.rows"), 0);
    assert_int_equal(run("eval --tokens ids --save-logits shut.rows 0<&- 2>&-"), 0);
    assert_int_equal(run("--version; cmp open.rows shut.rows"), 0);
    assert_int_equal(run("run -q -p x -n 2 >&-"), 1);
    assert_non_null(strstr(errors, "cannot write to standard output"));
    assert_int_equal(run("run -q -n 2 <&-"), 1);
    assert_non_null(strstr(errors, "the prompt is empty"));
    assert_int_equal(run("bench --prefill 8 --decode 0 --rounds 1 2>&- | grep -q prefill"), 0);
}

static void compared_rows_are_counted(void **state)
{
    (void)state;
    write_file("ids", "1 2 3 4 5 6 7 8", 15);
    write_file("more", "1 2 3 4 5 6 7 8 9", 17);
    assert_int_equal(run("eval --tokens ids --save-logits rows"), 0);
    assert_int_equal(run("eval --tokens more --save-logits rows9"), 0);
    assert_int_equal(run("eval --tokens ids --compare rows"), 0);
    assert_int_equal(run("eval --tokens ids --compare rows9"), 1);
    assert_non_null(strstr(errors, "8 rows of"));
    assert_int_equal(run("eval --tokens more --compare rows"), 1);
    assert_int_equal(run("eval --tokens ids --compare /dev/zero"), 1);
    assert_non_null(strstr(errors, "more than 8 rows"));
}

static void ids_have_no_zero_bytes(void **state)
{
    (void)state;
    write_file("ids", "1 2 3\0 4 5", 10);
    assert_int_equal(run("eval --tokens ids"), 1);
    assert_non_null(strstr(errors, "NUL byte"));
}

/* ---- Options that do nothing, and what is said ---------------------------------------------------- */

static void useless_options_are_told(void **state)
{
    (void)state;
    assert_int_equal(run("run -q -p x -n 1 --think"), 0);
    assert_non_null(strstr(errors, "--think has no effect"));
    assert_int_equal(run("run -q -p x -n 1"), 0);
    assert_int_equal(strlen(errors), 0); /* no seed either */
    assert_int_equal(run("run -q -p x -n 1 --device none --policy lru --readers 2 --postfetch down"), 0);
    assert_non_null(strstr(errors, "--policy has no effect: the whole model is in RAM"));
    assert_non_null(strstr(errors, "--readers has no effect"));
    assert_non_null(strstr(errors, "--postfetch has no effect: no GPU"));
    assert_int_equal(
        run("run -q -p x -n 1 --predict on --streaming --moe-hot-cache-weighting time --device none"), 0);
    assert_non_null(strstr(errors, "--predict on has no effect: the whole model is in RAM"));
    assert_non_null(strstr(errors, "--streaming is not needed"));
    assert_non_null(strstr(errors, "--moe-hot-cache-weighting has no effect: the hot cache is off"));
    assert_int_equal(run("run -q -p x -n 1 --draft-max 4"), 0);
    assert_non_null(strstr(errors, "--draft-max has no effect: no tokens are guessed"));
    assert_int_equal(run("run -q -p x -n 1 --draft-max 4 --speculate ngram"), 0);
    assert_null(strstr(errors, "--draft-max"));
    for (int device = 0; device < 2; device++) {
        assert_int_equal(run(device ? "run -q -p x -n 1 --speculate auto --batch 1 --device sim"
                                    : "run -q -p x -n 1 --speculate auto --batch 1 --device none"),
                         0);
        assert_non_null(strstr(errors, "speculative decoding is off: the batch is 1;"));
    }
    assert_int_equal(
        run("run -q -p x -n 1 --device sim --policy lru --readers 2 --predict on --io cached "
            "--postfetch down --moe-hot-cache-layer-curve 0.2 --moe-hot-cache-auto-reserve-mib 5"),
        0);
    assert_non_null(strstr(errors, "--policy has no effect: the whole model is in RAM and VRAM"));
    assert_non_null(strstr(errors, "--readers has no effect: the whole"));
    assert_non_null(strstr(errors, "--predict on has no effect: the whole"));
    assert_non_null(strstr(errors, "--io has no effect: the whole"));
    assert_non_null(strstr(errors, "--postfetch has no effect: all experts are in VRAM"));
    assert_non_null(strstr(errors, "--moe-hot-cache-layer-curve has no effect: the hot cache is off"));
    assert_non_null(strstr(errors, "--moe-hot-cache-auto-reserve-mib has no effect: the hot cache is off"));
    const char *first = strstr(errors, "--policy has no effect");
    assert_null(strstr(first + 1, "--policy has no effect")); /* once */
    assert_int_equal(
        run("run -q -p x -n 1 --device sim --vram 10M --ram 36M --ctx 2048 --policy lru --readers 2 "
            "--predict on --io cached"),
        0);
    assert_int_equal(strlen(errors), 0); /* there they do something, and nothing else was set */
    assert_int_equal(run("plan --device none --postfetch down --streaming --moe-hot-cache-layer-curve 0.2"),
                     0);
    assert_non_null(strstr(errors, "plan: note: --postfetch has no effect: no GPU in use"));
    assert_non_null(strstr(errors, "plan: note: --streaming is not needed"));
    assert_non_null(strstr(errors, "plan: note: --moe-hot-cache-layer-curve has no effect"));
    assert_int_equal(run("plan --device sim --postfetch down"), 0);
    assert_non_null(strstr(errors, "--postfetch has no effect: all experts are in VRAM"));
    setenv("LLAMA_POSTFETCH_ENABLE", "1", 1);
    setenv("LLAMA_POSTFETCH_SCRATCHPAD_MB", "700", 1);
    assert_int_equal(run("run -q -p x -n 1 --device none"), 0);
    assert_non_null(strstr(errors, "LLAMA_POSTFETCH_ENABLE"));
    assert_non_null(strstr(errors, "LLAMA_POSTFETCH_SCRATCHPAD_MB"));
    assert_non_null(strstr(errors, "no effect, no GPU in use"));
    unsetenv("LLAMA_POSTFETCH_ENABLE");
    unsetenv("LLAMA_POSTFETCH_SCRATCHPAD_MB");
    setenv("LLAMA_SET_ROWS", "1", 1);
    setenv("LLAMA_CACHE", "/nowhere", 1);
    setenv("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "1", 1);
    assert_int_equal(run("run -q -p x -n 1"), 0);
    const char *unread = strstr(errors, "LLAMA_SET_ROWS");
    assert_non_null(unread);
    assert_null(strstr(unread + 1, "LLAMA_SET_ROWS")); /* once */
    assert_non_null(strstr(errors, "LLAMA_CACHE"));
    assert_non_null(strstr(errors, "GGML_CUDA_ENABLE_UNIFIED_MEMORY"));
    assert_non_null(strstr(errors, "ignored"));
    unsetenv("LLAMA_SET_ROWS");
    unsetenv("LLAMA_CACHE");
    unsetenv("GGML_CUDA_ENABLE_UNIFIED_MEMORY");
    setenv("LLAMA_ARG_CTX_SIZE", "512", 1);
    setenv("LLAMA_ARG_MOE_HOT_CACHE", "x", 1);
    assert_int_equal(run("run -q -p x -n 1"), 0);
    assert_non_null(strstr(errors, "LLAMA_ARG_CTX_SIZE"));
    assert_non_null(strstr(errors, "LLAMA_ARG_MOE_HOT_CACHE"));
    unsetenv("LLAMA_ARG_CTX_SIZE");
    unsetenv("LLAMA_ARG_MOE_HOT_CACHE");
    assert_int_equal(run("run -q -p x -n 1 --device none --ram 40M --policy lru --readers 2"), 0);
    assert_int_equal(strlen(errors), 0);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect_failure("run -q -p x --device auto --vram 1G", 1, "requires a device, but there is none: ");
    assert_true(strlen(strstr(errors, "none: ")) > 20); /* and why */
    assert_int_equal(run("chat --vram 1G"), 1);
    assert_non_null(strstr(errors, "requires a device, but there is none: "));
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* RAM and VRAM are one capacity, of which a run tells the sum that the plan shows. */
static void runs_show_the_sum_of_the_tiers(void **state)
{
    (void)state;
    static const char where[] = "--device sim --vram 18M --ram 36M --ctx 2048";
    char command[256];
    snprintf(command, sizeof command, "plan %s", where);
    assert_int_equal(run(command), 0);
    const char *sum = strstr(output, " experts; ");
    assert_non_null(sum);
    const int held = atoi(sum + strlen(" experts; "));
    snprintf(command, sizeof command, "run -p x -n 2 %s", where);
    assert_int_equal(run(command), 0);
    const char *line = strstr(errors, "tiers: RAM ");
    assert_non_null(line);
    assert_non_null(strstr(line, " + VRAM "));
    assert_non_null(strstr(line, "of 448 experts"));
    assert_int_equal(atoi(strstr(line, " hold ") + strlen(" hold ")), held);
    snprintf(command, sizeof command, "run -p x -n 2 --json %s", where);
    assert_int_equal(run(command), 0);
    const char *json = strstr(output, "\"experts_held\": ");
    assert_non_null(json);
    assert_int_equal(atoi(json + strlen("\"experts_held\": ")), held);
    assert_int_equal(run("run -p x -n 2 --device none"), 0);
    assert_null(strstr(errors, "tiers:")); /* one tier that holds everything is no sum */
    assert_int_equal(run("run -p x -n 2 --device none --ram 32M --ctx 2048"), 0);
    assert_non_null(strstr(errors, "the rest is read from disk"));
}

/* The number that a refusal gives runs, and one byte less does not: whichever ceiling it names, with keys and values in either tier. */
static void refusals_name_the_least_that_runs(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "--device sim --vram 2M --ctx 2048",
        "--device sim --vram 2M --ctx 8192 --ram 60M",
        "--device sim --vram 3M --ctx 2048 --ram 32M",
        "--device none --ram 20M --ctx 2048",
        "--device sim --vram 64M --ctx 2048 --ram 20M",
        "--device sim --vram 8M --ctx 2048 --ram 20M",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[256];
        snprintf(command, sizeof command, "run -q -p x -n 1 %s", cases[i]);
        assert_int_equal(run(command), 1);
        const char *at = strchr(strstr(errors, "at least "), '('),
                   *what = strstr(errors, "of VRAM (") ? "vram" : "ram";
        const long long least = atoll(at + 1);
        assert_null(strstr(errors, "and --vram to"));
        for (int less = 0; less < 2; less++) { /* of an option that is given twice the last counts */
            snprintf(command, sizeof command, "run -q -p x -n 1 %s --%s %lld", cases[i], what, least - less);
            const int code = run(command);
            if (code != less) {
                fail_msg("%s: %d, %s", command, code, errors);
            }
        }
    }
    /* Both are too small. */
    assert_int_equal(run("run -q -p x -n 1 --device sim --vram 2M --ram 20M --ctx 2048"), 1);
    const char *ram = strchr(strstr(errors, "at least "), '('), *vram = strstr(errors, "and --vram to");
    assert_non_null(vram);
    char command[256];
    const long long ram_bytes = atoll(ram + 1), vram_bytes = atoll(strchr(vram, '(') + 1);
    for (int less = 0; less < 3; less++) {
        snprintf(command, sizeof command, "run -q -p x -n 1 --device sim --ctx 2048 --ram %lld --vram %lld",
                 ram_bytes - (less == 1), vram_bytes - (less == 2));
        assert_int_equal(run(command), less > 0);
    }
    /* What the device does not have is not asked for. */
    setenv("MORAINE_SIM", "memory=3M", 1);
    assert_int_equal(run("run -q -p x -n 1 --device sim --ctx 2048"), 1);
    assert_non_null(strstr(errors, "the device has only 3.00 MiB free: "));
    assert_null(strstr(errors, "raise --vram"));
    unsetenv("MORAINE_SIM");
}

static void messages(void **state)
{
    (void)state;
    assert_int_equal(run("synth smollm2-135m --layers 1 -o blank.gguf --force"), 0);
    assert_int_equal(run("plan blank.gguf --ram 1M"), 1);
    assert_null(strstr(errors, "experts"));
    assert_int_equal(run("run -q --device sim --vram 1K -p x"), 1);
    assert_non_null(strstr(errors, "at least"));
    assert_null(strstr(errors, "0.0 of"));
    write_file("cut.gguf", "GGUF\3\0\0\0", 8);
    assert_int_equal(run("run cut.gguf -p x"), 1);
    const char *once = strstr(errors, "cut.gguf");
    assert_non_null(once);
    assert_null(strstr(once + 1, "cut.gguf"));
}

static void eval_takes_a_lone_text(void **state)
{
    (void)state;
    make_text("story.txt", 10);
    assert_int_equal(run("eval story.txt"), 0);
    assert_non_null(strstr(output, "perplexity"));
    assert_int_equal(run("eval nosuch.gguf"), 2);
    assert_int_equal(run("eval story.txt -w 1"), 0);
    assert_non_null(strstr(output, "perplexity      none: every token is the first of its window"));
    assert_int_equal(run("eval story.txt -w 1 --json"), 0);
    assert_non_null(strstr(output, "\"perplexity\": null"));
    make_text("brief", 1);
    assert_int_equal(run("bench --text brief --prefill 200 --decode 0 --rounds 1"), 0);
    assert_non_null(strstr(errors, "is repeated to 200"));
}

/* test_manners [NAME]: one test alone. */
int main(int argc, char **argv)
{
    signal(SIGINT, SIG_DFL); /* a shell's background job ignores it, and so would what is started here */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_end_every_command),
        cmocka_unit_test(a_second_signal_leaves_nothing_behind),
        cmocka_unit_test(a_lost_terminal_ends_every_command),
        cmocka_unit_test(an_ignored_signal_stays_ignored),
        cmocka_unit_test(trace_into_an_unread_pipe_ends),
        cmocka_unit_test(trace_keeps_what_it_has),
        cmocka_unit_test(a_mapped_file_is_cut_short),
        cmocka_unit_test(peak_memory_is_what_was_planned),
        cmocka_unit_test(the_built_in_model_needs_less_than_80_mb),
        cmocka_unit_test(an_80_mb_cgroup_runs_the_built_in_model),
        cmocka_unit_test(doctor_says_whether_something_is_wrong),
        cmocka_unit_test(wrong_usage_is_2),
        cmocka_unit_test(failures_are_1),
        cmocka_unit_test(what_the_header_settles),
        cmocka_unit_test(what_the_files_settle),
        cmocka_unit_test(logits_are_saved_whole_or_not_at_all),
        cmocka_unit_test(logits_are_saved_behind_a_link),
        cmocka_unit_test(a_profile_that_cannot_be_written_fails_at_the_end),
        cmocka_unit_test(standard_output_that_cannot_be_written),
        cmocka_unit_test(standard_files_that_are_closed),
        cmocka_unit_test(compared_rows_are_counted),
        cmocka_unit_test(ids_have_no_zero_bytes),
        cmocka_unit_test(useless_options_are_told),
        cmocka_unit_test(runs_show_the_sum_of_the_tiers),
        cmocka_unit_test(refusals_name_the_least_that_runs),
        cmocka_unit_test(messages),
        cmocka_unit_test(eval_takes_a_lone_text),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("manners", tests, make_folder, remove_folder);
}
