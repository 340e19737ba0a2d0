#include "experts/warm.h"
#include "disk/choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/input.h"
#include "base/output.h"
#include "base/status.h"

static const char magic[8] = {'M', 'O', 'W', 'A', 'R', 'M', 0, 0};

enum {
    FORMAT = 2,
    READ_BYTES = 32 << 20, /* bytes of one read, which several readers serve in pieces */
    PIECE_BYTES = 4 << 20, /* larger than pieces for experts: nothing waits for the first one */
    AHEAD = 4,             /* reads in flight: the disk keeps working while checksums are verified */
    PARTS_MAX = 1 << 16,
};

/* Begins the file, in memory layout: such files do not leave their machine. The list of the model's files
 * follows, then the experts in slot order, then the slots at multiples of MO_DISK_ALIGN. */
typedef struct head {
    char magic[8];
    uint32_t format, byte_order; /* 1 */
    uint64_t sum;                /* checksum of the table, with this field 0 */
    uint64_t fingerprint;
    uint64_t table_bytes; /* including this head, padded */
    uint64_t file_bytes;
    uint32_t parts, experts;
} head;

typedef struct part {
    int64_t bytes, changed_ns;
} part;

typedef struct entry {
    int32_t layer, expert;
    int64_t bytes; /* 0: it was in VRAM, and the file only names it */
    uint64_t at, sum;
} entry;

_Static_assert(sizeof(head) == 56 && sizeof(part) == 16 && sizeof(entry) == 32, "file layout");

typedef struct table {
    uint8_t *bytes; /* table_bytes */
    head *head;
    part *parts;
    entry *entries;
} table;

/* ---- Small steps ---- */

static uint64_t aligned(uint64_t n)
{
    return (n + MO_DISK_ALIGN - 1) / MO_DISK_ALIGN * MO_DISK_ALIGN;
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h << 29 | h >> 35;
}

/* Checksum of a multiple of 64 bytes: sums and sums of sums, like Fletcher's, in eight lanes. It is as fast
 * as memory, and detects damage by a disk or by a killed writer. It does not protect against an attacker, who
 * could change the model just as well. */
static uint64_t sum_of(const uint8_t *bytes, uint64_t count)
{
    uint64_t one[8] = {1, 2, 3, 4, 5, 6, 7, 8}, two[8] = {0}, words[8], h = count;
    for (uint64_t i = 0; i + sizeof words <= count; i += sizeof words) {
        memcpy(words, bytes + i, sizeof words);
        for (int k = 0; k < 8; k++) {
            one[k] += words[k];
            two[k] += one[k];
        }
    }
    for (int k = 0; k < 8; k++) {
        h = mix(mix(h, one[k]), two[k]);
    }
    return h;
}

static void lay_table(table *t)
{
    t->head = (head *)t->bytes;
    t->parts = (part *)(t->bytes + sizeof(head));
    t->entries = (entry *)(t->bytes + sizeof(head) + t->head->parts * sizeof(part));
}

static uint64_t table_bytes(uint32_t parts, uint32_t experts)
{
    return aligned(sizeof(head) + parts * sizeof(part) + experts * sizeof(entry));
}

static mo_status no_memory(const char *path, mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "%s: out of memory for its table; free some and try again", path);
}

static void fill_parts(const mo_store *store, table *t)
{
    for (uint32_t i = 0; i < t->head->parts; i++) {
        const mo_disk *disk = mo_store_disk(store);
        t->parts[i] = (part){mo_disk_file_bytes(disk, (int)i), mo_disk_file_changed_ns(disk, (int)i)};
    }
}

/* ---- Saving ---- */

static uint32_t count_resident(const mo_store *store)
{
    const mo_expert_table *b = mo_store_experts(store);
    const uint8_t *memory;
    uint32_t count = 0;
    for (int c = 0; c < b->class_count; c++) {
        for (int32_t i = 0; i < mo_store_class_slots(store, c); i++) {
            count += mo_store_slot(store, c, i, &memory) >= 0;
        }
    }
    return count;
}

/* Lists the resident experts with their checksums, then those of VRAM. */
static void fill_entries(const mo_store *store, const mo_store_request *vram, int32_t count, table *t)
{
    const mo_expert_table *b = mo_store_experts(store);
    uint64_t at = t->head->table_bytes;
    uint32_t n = 0;
    for (int c = 0; c < b->class_count; c++) {
        for (int32_t i = 0; i < mo_store_class_slots(store, c); i++) {
            const uint8_t *memory;
            const int32_t expert_id = mo_store_slot(store, c, i, &memory);
            if (expert_id >= 0) {
                const int64_t bytes = b->classes[c].slot_bytes;
                const mo_expert_home *home = &b->home[expert_id];
                t->entries[n++] =
                    (entry){home->layer, home->expert, bytes, at, sum_of(memory, (uint64_t)bytes)};
                at += (uint64_t)bytes;
            }
        }
    }
    for (int32_t i = 0; i < count; i++) {
        t->entries[n++] = (entry){.layer = vram[i].layer, .expert = vram[i].expert, .at = at};
    }
    t->head->file_bytes = at;
}

static mo_status make_table(const mo_store *store, uint64_t fingerprint, const char *path,
                            const mo_store_request *vram, int32_t count, table *t, mo_error *err)
{
    const uint32_t parts = (uint32_t)mo_disk_files(mo_store_disk(store)),
                   experts = count_resident(store) + (uint32_t)count;
    const uint64_t bytes = table_bytes(parts, experts);
    t->bytes = calloc(1, bytes);
    if (!t->bytes) {
        return no_memory(path, err);
    }
    *(head *)t->bytes = (head){.format = FORMAT,
                               .byte_order = 1,
                               .fingerprint = fingerprint,
                               .table_bytes = bytes,
                               .parts = parts,
                               .experts = experts};
    lay_table(t);
    memcpy(t->head->magic, magic, sizeof magic);
    fill_parts(store, t);
    fill_entries(store, vram, count, t);
    t->head->sum = sum_of(t->bytes, bytes);
    return MO_OK;
}

static mo_status write_slots(const mo_store *store, const table *t, mo_output *output, mo_error *err)
{
    const mo_expert_table *b = mo_store_experts(store);
    mo_status status = mo_output_append(output, t->bytes, t->head->table_bytes, err);
    for (int c = 0; c < b->class_count && status == MO_OK; c++) {
        const int32_t slots = mo_store_class_slots(store, c);
        for (int32_t i = 0; i < slots && status == MO_OK; i++) {
            const uint8_t *memory;
            if (mo_store_slot(store, c, i, &memory) >= 0) {
                status = mo_output_append(output, memory, (size_t)b->classes[c].slot_bytes, err);
            }
        }
    }
    return status;
}

mo_status mo_warm_save(mo_store *store, uint64_t fingerprint, const char *path, const mo_store_request *vram,
                       int32_t count, mo_warm_report *report, mo_error *err)
{
    table t = {0};
    mo_output *output = NULL;
    const int64_t began = mo_clock_ns();
    *report = (mo_warm_report){0};
    mo_store_settle(store);
    mo_status status = make_table(store, fingerprint, path, vram, count, &t, err);
    if (status == MO_OK && t.head) { /* always true here; for the analyzer */
        status = mo_output_create(path, t.head->file_bytes, &output, err);
    }
    if (status == MO_OK && output) {
        status = write_slots(store, &t, output, err);
        if (status == MO_OK) {
            status = mo_output_commit(output, err);
        } else {
            mo_output_abort(output);
        }
    }
    if (status == MO_OK && t.head) {
        report->experts = (int32_t)t.head->experts;
        report->bytes = (int64_t)(t.head->file_bytes - t.head->table_bytes);
        report->time_ns = mo_clock_ns() - began;
    }
    free(t.bytes);
    return status;
}

/* ---- Reading the table ---- */

static mo_status is_damaged(const char *path, mo_error *err)
{
    return mo_fail(err, MO_EFORMAT, "%s: the warm-start file is damaged or truncated and is not used", path);
}

static mo_status check_owner(const mo_store *store, uint64_t fingerprint, const char *path, const table *t,
                             mo_error *err)
{
    const mo_disk *disk = mo_store_disk(store);
    if (t->head->fingerprint != fingerprint || t->head->parts != (uint32_t)mo_disk_files(disk)) {
        return mo_fail(err, MO_EFORMAT, "%s: the warm-start file belongs to another model and is not used",
                       path);
    }
    for (uint32_t i = 0; i < t->head->parts; i++) {
        if (t->parts[i].bytes != mo_disk_file_bytes(disk, (int)i) ||
            t->parts[i].changed_ns != mo_disk_file_changed_ns(disk, (int)i)) {
            return mo_fail(
                err, MO_EFORMAT,
                "%s: the model file has changed since the warm-start file was written; it is not used", path);
        }
    }
    return MO_OK;
}

/* True if every entry names an expert, has the bytes of its slot, and is inside the file. */
static bool entries_fit(const mo_store *store, const table *t)
{
    const mo_expert_table *b = mo_store_experts(store);
    uint64_t at = t->head->table_bytes;
    for (uint32_t i = 0; i < t->head->experts; i++) {
        const entry *e = &t->entries[i];
        const bool known = e->layer >= 0 && e->layer < b->layers && e->expert >= 0 && e->expert < b->experts;
        const int32_t expert_id = known ? mo_expert_table_id(b, e->layer, e->expert) : -1;
        if (expert_id < 0 || e->at != at ||
            (e->bytes != 0 && e->bytes != b->classes[b->home[expert_id].size_class].slot_bytes)) {
            return false;
        }
        at += (uint64_t)e->bytes;
    }
    return at == t->head->file_bytes;
}

static mo_status read_table(const mo_store *store, uint64_t fingerprint, const char *path, table *t,
                            mo_error *err)
{
    mo_input *input = NULL;
    head h = {0};
    mo_status status = mo_input_open(path, &input, err);
    if (status != MO_OK) {
        return status;
    }
    const uint64_t file_bytes = mo_input_bytes(input);
    if (file_bytes < sizeof h || mo_input_read_at(input, &h, sizeof h, 0, err) != MO_OK ||
        memcmp(h.magic, magic, sizeof magic) != 0 || h.format != FORMAT || h.byte_order != 1) {
        mo_input_close(input);
        return mo_fail(err, MO_EFORMAT, "%s: this is not a warm-start file of this version; it is not used",
                       path);
    }
    const uint32_t most = 2 * (uint32_t)mo_store_experts(store)->expert_count; /* in RAM, and in VRAM */
    if (h.parts > PARTS_MAX || h.experts > most || h.table_bytes != table_bytes(h.parts, h.experts) ||
        h.file_bytes != file_bytes || h.table_bytes > file_bytes) {
        /* Too many experts may also mean another model. */
        status = h.fingerprint != fingerprint
                     ? check_owner(store, fingerprint, path, &(table){.head = &h}, err)
                     : is_damaged(path, err);
        mo_input_close(input);
        return status;
    }
    t->bytes = malloc(h.table_bytes);
    if (!t->bytes) {
        mo_input_close(input);
        return no_memory(path, err);
    }
    status = mo_input_read_at(input, t->bytes, h.table_bytes, 0, err);
    mo_input_close(input);
    if (status != MO_OK) {
        return status;
    }
    lay_table(t);
    t->head->sum = 0;
    if (sum_of(t->bytes, h.table_bytes) != h.sum) {
        return is_damaged(path, err);
    }
    status = check_owner(store, fingerprint, path, t, err);
    return status == MO_OK && !entries_fit(store, t) ? is_damaged(path, err) : status;
}

/* ---- Loading ---- */

/* Slots that are consecutive in memory and in the file. */
typedef struct run {
    mo_read read;
    uint32_t first, count; /* range of entries */
} run;

typedef struct loading {
    mo_store *store;
    mo_disk *disk;
    const char *path;
    const table *table;
    run *runs;
    uint32_t run_count;
} loading;

/* Opens the file with the I/O method of the model's files, if its disk supports that. */
static mo_status open_disk(const mo_store *store, const char *path, mo_disk **out, mo_error *err)
{
    const mo_disk *model = mo_store_disk(store);
    const bool uring = mo_disk_chosen(model) == MO_DISK_URING;
    const mo_disk_options same = {
        .io = mo_disk_io(model), .uring = uring, .plain = !uring, .piece = PIECE_BYTES};
    const mo_disk_options simple = {.io = MO_IO_CACHED, .plain = true};
    const mo_status status = mo_disk_open(&path, 1, &same, out, err);
    return status == MO_EUNSUPPORTED ? mo_disk_open(&path, 1, &simple, out, err) : status;
}

static int32_t expert_of(const loading *l, uint32_t index)
{
    return mo_expert_table_id(mo_store_experts(l->store), l->table->entries[index].layer,
                              l->table->entries[index].expert);
}

/* Lists the experts named in the file, VRAM's first. */
static mo_status list_order(const loading *l, mo_store_request **order, int32_t *count, mo_error *err)
{
    const uint32_t experts = l->table->head->experts;
    mo_store_request *list = calloc((size_t)experts + 1, sizeof *list);
    int32_t n = 0, vram = 0;
    if (!list) {
        return no_memory(l->path, err);
    }
    for (int in_ram = 0; in_ram < 2; in_ram++) {
        for (uint32_t i = 0; i < experts; i++) {
            const entry *e = &l->table->entries[i];
            if ((e->bytes != 0) == (in_ram == 1)) {
                list[n++] =
                    (mo_store_request){.layer = e->layer, .expert = e->expert, .hits = in_ram ? 1 : 2};
                vram += !in_ram;
            }
        }
    }
    if (vram == 0) {
        free(list);
        return MO_OK;
    }
    *order = list;
    *count = n;
    return MO_OK;
}

/* Assigns slots to the experts and joins neighbours into runs. Experts without a slot are skipped. passing: a
 * quarter of the slots stays free for experts on their way through RAM to a device. */
static mo_status plan_runs(loading *l, bool passing, mo_error *err)
{
    const uint32_t experts = l->table->head->experts;
    const mo_expert_table *b = mo_store_experts(l->store);
    int32_t left[MO_EXPERT_CLASSES];
    for (int c = 0; c < b->class_count; c++) {
        const int32_t slots = mo_store_class_slots(l->store, c);
        left[c] = passing ? slots - slots / 4 : slots;
    }
    l->runs = calloc((size_t)experts + 1, sizeof *l->runs);
    if (!l->runs) {
        return no_memory(l->path, err);
    }
    run *last = NULL;
    for (uint32_t i = 0; i < experts; i++) {
        const entry *e = &l->table->entries[i];
        int32_t *free_slots = &left[b->home[expert_of(l, i)].size_class];
        uint8_t *memory = e->bytes && *free_slots > 0 ? mo_store_claim(l->store, expert_of(l, i)) : NULL;
        *free_slots -= memory != NULL;
        if (!memory) {
            last = NULL;
            continue;
        }
        const bool joins = last && last->read.memory + last->read.bytes == memory &&
                           last->read.offset + last->read.bytes == (int64_t)e->at &&
                           last->read.bytes + e->bytes <= READ_BYTES;
        if (!joins) {
            last = &l->runs[l->run_count++];
            last->first = i;
            last->read.offset = (int64_t)e->at;
            last->read.memory = memory;
            last->read.urgency = MO_READ_AHEAD;
        }
        last->read.bytes += e->bytes;
        last->count++;
    }
    return MO_OK;
}

/* Waits for a run and passes its experts to the store. Experts with a wrong checksum are dropped. */
static mo_status receive(loading *l, const run *r, bool good, mo_warm_report *report, mo_error *err)
{
    mo_status status = MO_OK;
    for (uint64_t seen = mo_disk_ended(l->disk); good;) {
        const int state = atomic_load_explicit(&r->read.state, memory_order_acquire);
        if (state == MO_READ_DONE) {
            break;
        }
        if (state == MO_READ_FAILED) {
            status = mo_fail(err, r->read.error.status, "%s", r->read.error.detail);
            good = false;
            break;
        }
        seen = mo_disk_wait(l->disk, seen);
    }
    int64_t at = 0;
    for (uint32_t i = r->first; i < r->first + r->count; i++) {
        const entry *e = &l->table->entries[i];
        const bool whole = good && sum_of(r->read.memory + at, (uint64_t)e->bytes) == e->sum;
        mo_error fault = {0};
        const mo_status filled = mo_store_filled(l->store, expert_of(l, i), whole, &fault);
        if (good && (!whole || filled != MO_OK)) {
            status = is_damaged(l->path, err);
        } else if (good) {
            report->experts++;
            report->bytes += e->bytes;
        }
        at += e->bytes;
    }
    return status;
}

static mo_status read_runs(loading *l, mo_progress_fn progress, void *user, mo_warm_report *report,
                           mo_error *err)
{
    int64_t total = 0, done = 0;
    uint32_t asked = 0;
    mo_status status = MO_OK;
    for (uint32_t i = 0; i < l->run_count; i++) {
        total += l->runs[i].read.bytes;
    }
    for (uint32_t i = 0; i < l->run_count; i++) {
        for (; status == MO_OK && asked < l->run_count && asked < i + AHEAD; asked++) {
            mo_read *read = &l->runs[asked].read;
            mo_disk_submit(l->disk, &read, 1);
        }
        mo_error fault = {0};
        const mo_status one = receive(l, &l->runs[i], i < asked, report, &fault);
        if (status == MO_OK && one != MO_OK) {
            status = mo_fail(err, one, "%s", fault.detail);
        }
        done += l->runs[i].read.bytes;
        if (status == MO_OK && progress && !progress(user, done, total)) {
            status = mo_fail(err, MO_ECANCELLED, "warming the cache was cancelled");
        }
    }
    return status;
}

mo_status mo_warm_load(mo_store *store, uint64_t fingerprint, const char *path, mo_progress_fn progress,
                       void *user, mo_store_request **order, int32_t *count, mo_warm_report *report,
                       mo_error *err)
{
    table t = {0};
    loading l = {.store = store, .path = path, .table = &t};
    *report = (mo_warm_report){0};
    *order = NULL;
    *count = 0;
    mo_status status = read_table(store, fingerprint, path, &t, err);
    if (status == MO_OK) {
        status = open_disk(store, path, &l.disk, err);
    }
    if (status == MO_OK) {
        status = list_order(&l, order, count, err);
    }
    if (status == MO_OK) {
        status = plan_runs(&l, *order != NULL, err);
    }
    const int64_t began = mo_clock_ns();
    if (status == MO_OK) {
        status = read_runs(&l, progress, user, report, err);
    }
    report->time_ns = mo_clock_ns() - began;
    mo_disk_close(l.disk);
    free(l.runs);
    free(t.bytes);
    return status;
}
