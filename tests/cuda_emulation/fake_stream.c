/* Streams as threads, events as marks in them, graphs as lists of work. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_parts.h"

typedef struct fake_event {
    struct fake_event *next;
    uint64_t recorded, done; /* number of the last recording that was enqueued, and that was reached */
    int uses;                /* pieces of work that name it, and whoever made it */
    double seconds;          /* when it was reached */
} fake_event;

typedef enum fake_kind { COPY, SET, KERNEL, RECORD, AWAIT } fake_kind;

typedef struct fake_work {
    struct fake_work *next;
    fake_kind kind;
    void *to;
    const void *from;
    size_t bytes;
    int value;
    fake_event *event;
    uint64_t recording;
    const fake_function *function;
    uint32_t grid[3], block[3], shared;
    _Alignas(16) unsigned char args[]; /* of a kernel */
} fake_work;

typedef struct fake_list {
    fake_work *first, *last;
} fake_list;

typedef struct fake_stream {
    fake_list queue;
    struct fake_graph *capture; /* being recorded: work goes there and nowhere else */
    struct fake_stream *next;
    pthread_t thread;
    bool started, busy, ends;
} fake_stream;

typedef struct fake_graph {
    struct fake_graph *next;
    fake_list list;
} fake_graph;

/* All of them. */
static fake_stream *streams;
static fake_event *events;
static fake_graph *graphs;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Work ---- */

static size_t work_bytes(const fake_work *work)
{
    return sizeof *work + (work->kind == KERNEL ? work->function->args_bytes : 0);
}

static fake_work *copy_of(const fake_work *work)
{
    fake_work *copy = malloc(work_bytes(work));
    if (!copy) {
        abort();
    }
    memcpy(copy, work, work_bytes(work));
    copy->next = NULL;
    return copy;
}

static void append(fake_list *list, fake_work *work)
{
    *(list->last ? &list->last->next : &list->first) = work;
    list->last = work;
}

static void free_list(fake_list *list)
{
    while (list->first) {
        fake_work *work = list->first;
        list->first = work->next;
        free(work);
    }
    list->last = NULL;
}

/* Locked. */
static void release_event(fake_event *event)
{
    if (--event->uses > 0) {
        return;
    }
    fake_event **place = &events;
    while (*place != event) {
        place = &(*place)->next;
    }
    *place = event->next;
    free(event);
}

/* Without the lock, but for what others look at. A broken device does nothing any more, and waits for nothing. */
static void perform(const fake_work *work, bool breaks)
{
    if (breaks && work->kind < RECORD) {
        return;
    }
    switch (work->kind) {
    case COPY: memmove(work->to, work->from, work->bytes); break;
    case SET: memset(work->to, work->value, work->bytes); break;
    case KERNEL:
        mo_emulated_launch(work->function->name, work->function->entry, work->args, work->grid, work->block,
                           work->shared);
        break;
    case RECORD:
    case AWAIT:
        pthread_mutex_lock(&fake_lock);
        if (work->kind == RECORD) {
            work->event->done = work->recording;
            work->event->seconds = seconds_now();
        }
        while (work->kind == AWAIT && work->event->done < work->recording && !fake_broken) {
            pthread_cond_wait(&fake_changed, &fake_lock);
        }
        release_event(work->event);
        pthread_mutex_unlock(&fake_lock);
    }
}

static void *stream_main(void *argument)
{
    fake_stream *stream = argument;
    pthread_mutex_lock(&fake_lock);
    while (stream->queue.first || !stream->ends) {
        fake_work *work = stream->queue.first;
        stream->busy = work != NULL;
        pthread_cond_broadcast(&fake_changed);
        if (!work) {
            pthread_cond_wait(&fake_changed, &fake_lock);
            continue;
        }
        stream->queue.first = work->next;
        if (!work->next) {
            stream->queue.last = NULL;
        }
        const bool breaks = fake_broken != 0;
        pthread_mutex_unlock(&fake_lock);
        perform(work, breaks);
        free(work);
        pthread_mutex_lock(&fake_lock);
    }
    stream->busy = false;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

/* Locked. Takes the work. */
static int enqueue(fake_stream *stream, fake_work *work)
{
    if (!stream) {
        free(work);
        return FAKE_INVALID_HANDLE; /* the program uses streams of its own only */
    }
    if (!stream->capture && !stream->started) {
        if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
            abort();
        }
        stream->started = true;
    }
    append(stream->capture ? &stream->capture->list : &stream->queue, work);
    pthread_cond_broadcast(&fake_changed);
    return MO_CUDA_OK;
}

static int enqueue_simple(void *stream, const fake_work *work)
{
    return enqueue(stream, copy_of(work));
}

int fake_memcpy_htod(uint64_t to, const void *from, size_t bytes, void *stream)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    if (!fake_owns(to, bytes, true) || fake_owns((uintptr_t)from, 1, false)) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    return fake_leave(enqueue_simple(
        stream, &(fake_work){.kind = COPY, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes}));
}

int fake_memcpy_dtoh(void *to, uint64_t from, size_t bytes, void *stream)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    if (!fake_owns(from, bytes, true) || fake_owns((uintptr_t)to, 1, false)) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    return fake_leave(enqueue_simple(
        stream, &(fake_work){.kind = COPY, .to = to, .from = (const void *)(uintptr_t)from, .bytes = bytes}));
}

int fake_memcpy_dtod(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    if (!fake_owns(from, bytes, true) || !fake_owns(to, bytes, true)) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    return fake_leave(enqueue_simple(stream, &(fake_work){.kind = COPY,
                                                          .to = (void *)(uintptr_t)to,
                                                          .from = (const void *)(uintptr_t)from,
                                                          .bytes = bytes}));
}

int fake_memset(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    if (!fake_owns(to, bytes, true)) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    return fake_leave(enqueue_simple(
        stream, &(fake_work){.kind = SET, .to = (void *)(uintptr_t)to, .value = value, .bytes = bytes}));
}

int fake_enqueue_kernel(const fake_function *function, const uint32_t grid[3], const uint32_t block[3],
                        uint32_t shared, void *stream, const void *args)
{
    fake_work *work = calloc(1, sizeof *work + function->args_bytes);
    if (!work) {
        abort();
    }
    work->kind = KERNEL;
    work->function = function;
    memcpy(work->grid, grid, sizeof work->grid);
    memcpy(work->block, block, sizeof work->block);
    work->shared = shared;
    memcpy(work->args, args, function->args_bytes); /* now: the caller may change them when it is back */
    return enqueue(stream, work);
}

/* ---- Streams ---- */

int fake_stream_create(void **stream, unsigned flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    if (flags != MO_CUDA_STREAM_NON_BLOCKING) { /* others wait for the default stream, which is not here */
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    fake_stream *made = calloc(1, sizeof *made);
    if (!made) {
        return fake_leave(MO_CUDA_OUT_OF_MEMORY);
    }
    made->next = streams;
    streams = made;
    fake_held++;
    *stream = made;
    return fake_leave(MO_CUDA_OK);
}

/* Locked; true when nothing is left to do. */
static bool idle(const fake_stream *stream)
{
    return !stream->busy && !stream->queue.first;
}

/* Locked when it is called, and not any more when it is back. */
static void end_stream(fake_stream *stream)
{
    fake_stream **place = &streams;
    while (*place != stream) {
        place = &(*place)->next;
    }
    *place = stream->next;
    stream->ends = true;
    pthread_cond_broadcast(&fake_changed);
    fake_held--;
    pthread_mutex_unlock(&fake_lock);
    if (stream->started) {
        pthread_join(stream->thread, NULL); /* after what was enqueued */
    }
    free(stream);
}

int fake_stream_destroy(void *handle)
{
    const int entered = fake_enter();
    if (entered == MO_CUDA_OK) {
        end_stream(handle);
    }
    return entered;
}

int fake_stream_synchronize(void *handle)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    while (!idle(handle)) {
        pthread_cond_wait(&fake_changed, &fake_lock);
    }
    return fake_leave(MO_CUDA_OK);
}

void fake_wait_idle(void)
{
    for (fake_stream *stream = streams; stream;) {
        if (idle(stream)) {
            stream = stream->next;
        } else {
            pthread_cond_wait(&fake_changed, &fake_lock);
            stream = streams;
        }
    }
}

int fake_ctx_synchronize(void)
{
    const int entered = fake_enter();
    if (entered == MO_CUDA_OK) {
        fake_wait_idle();
        fake_leave(MO_CUDA_OK);
    }
    return entered;
}

/* ---- Events ---- */

int fake_event_create(void **event, unsigned flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)flags;
    fake_event *made = calloc(1, sizeof *made);
    if (!made) {
        return fake_leave(MO_CUDA_OUT_OF_MEMORY);
    }
    made->uses = 1;
    made->next = events;
    events = made;
    fake_held++;
    *event = made;
    return fake_leave(MO_CUDA_OK);
}

int fake_event_destroy(void *handle)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    fake_held--;
    release_event(handle);
    return fake_leave(MO_CUDA_OK);
}

int fake_event_record(void *handle, void *stream)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    fake_event *event = handle;
    if (!stream || ((fake_stream *)stream)->capture) {
        return fake_leave(FAKE_CAPTURE_ERROR);
    }
    event->uses++;
    event->recorded++;
    return fake_leave(
        enqueue_simple(stream, &(fake_work){.kind = RECORD, .event = event, .recording = event->recorded}));
}

/* An event that was never recorded is done, as the driver has it. */
int fake_stream_wait_event(void *stream, void *handle, unsigned flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)flags;
    fake_event *event = handle;
    if (!stream || ((fake_stream *)stream)->capture) {
        return fake_leave(FAKE_CAPTURE_ERROR);
    }
    event->uses++;
    return fake_leave(
        enqueue_simple(stream, &(fake_work){.kind = AWAIT, .event = event, .recording = event->recorded}));
}

int fake_event_query(void *handle)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    const fake_event *event = handle;
    return fake_leave(event->done == event->recorded ? MO_CUDA_OK : MO_CUDA_NOT_READY);
}

int fake_event_synchronize(void *handle)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    const fake_event *event = handle;
    const uint64_t recording = event->recorded;
    while (event->done < recording) {
        pthread_cond_wait(&fake_changed, &fake_lock);
    }
    return fake_leave(MO_CUDA_OK);
}

int fake_event_elapsed_time(float *milliseconds, void *from, void *to)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    const fake_event *a = from, *b = to;
    if (a->recorded == 0 || b->recorded == 0) {
        return fake_leave(FAKE_INVALID_HANDLE);
    }
    if (a->done < a->recorded || b->done < b->recorded) {
        return fake_leave(MO_CUDA_NOT_READY);
    }
    *milliseconds = (float)((b->seconds - a->seconds) * 1e3);
    return fake_leave(MO_CUDA_OK);
}

/* ---- Graphs ---- */

/* Locked. */
static fake_graph *make_graph(void)
{
    fake_graph *graph = calloc(1, sizeof *graph);
    if (graph) {
        graph->next = graphs;
        graphs = graph;
        fake_held++;
    }
    return graph;
}

static void drop_graph(fake_graph *graph)
{
    fake_graph **place = &graphs;
    while (*place != graph) {
        place = &(*place)->next;
    }
    *place = graph->next;
    free_list(&graph->list);
    free(graph);
    fake_held--;
}

int fake_begin_capture(void *handle, int mode)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)mode;
    fake_stream *stream = handle;
    if (stream->capture) {
        return fake_leave(FAKE_CAPTURE_ERROR);
    }
    stream->capture = make_graph();
    return fake_leave(stream->capture ? MO_CUDA_OK : MO_CUDA_OUT_OF_MEMORY);
}

int fake_end_capture(void *handle, void **graph)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    fake_stream *stream = handle;
    *graph = stream->capture;
    stream->capture = NULL;
    return fake_leave(*graph ? MO_CUDA_OK : FAKE_CAPTURE_ERROR);
}

int fake_graph_instantiate(void **exec, void *handle, unsigned long long flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)flags;
    const fake_graph *graph = handle;
    fake_graph *copy = make_graph();
    if (!copy) {
        return fake_leave(MO_CUDA_OUT_OF_MEMORY);
    }
    for (const fake_work *work = graph->list.first; work; work = work->next) {
        append(&copy->list, copy_of(work));
    }
    *exec = copy;
    return fake_leave(MO_CUDA_OK);
}

int fake_graph_launch(void *exec, void *stream)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    int result = MO_CUDA_OK;
    for (const fake_work *work = ((fake_graph *)exec)->list.first; work && result == MO_CUDA_OK;
         work = work->next) {
        result = enqueue_simple(stream, work);
    }
    return fake_leave(result);
}

int fake_graph_destroy(void *handle)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    drop_graph(handle);
    return fake_leave(MO_CUDA_OK);
}

/* ---- The end ---- */

void fake_drop_all(void)
{
    for (;;) {
        pthread_mutex_lock(&fake_lock);
        if (!streams) {
            break;
        }
        end_stream(streams);
    }
    while (graphs) {
        drop_graph(graphs);
    }
    while (events) {
        fake_held--;
        release_event(events);
    }
    pthread_mutex_unlock(&fake_lock);
}
