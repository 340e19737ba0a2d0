/* Parts of the fake driver that its files share. One lock guards everything but the work itself. */
#ifndef MO_FAKE_PARTS_H
#define MO_FAKE_PARTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/driver.h"
#include "emulated.h"
#include "fake_driver.h"

enum { FAKE_INVALID_CONTEXT = 201, FAKE_INVALID_HANDLE = 400, FAKE_CAPTURE_ERROR = 901 };

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed; /* something was enqueued or has ended */
extern mo_fake_gpu fake_gpu;        /* what is being played */
extern int fake_held;               /* things made and not yet given back */
extern int fake_broken;             /* what every call returns; 0: nothing is broken */

/* Begins every call that needs a context: 0, or what the call returns. Takes the lock when it gives 0. */
int fake_enter(void);

/* Ends it. */
int fake_leave(int result);

/* True when these bytes are in memory that the device was given, or in pinned memory where that counts. Locked. */
bool fake_owns(uint64_t address, size_t bytes, bool pinned_too);

/* ---- fake_stream.c ---- */

/* Until no stream does anything. Locked. */
void fake_wait_idle(void);

/* Ends streams and frees what they and events and graphs hold: the context is gone. Not locked. */
void fake_drop_all(void);

int fake_memcpy_htod(uint64_t to, const void *from, size_t bytes, void *stream);
int fake_memcpy_dtoh(void *to, uint64_t from, size_t bytes, void *stream);
int fake_memcpy_dtod(uint64_t to, uint64_t from, size_t bytes, void *stream);
int fake_memset(uint64_t to, unsigned char value, size_t bytes, void *stream);
int fake_stream_create(void **stream, unsigned flags);
int fake_stream_destroy(void *stream);
int fake_stream_synchronize(void *stream);
int fake_ctx_synchronize(void);
int fake_stream_wait_event(void *stream, void *event, unsigned flags);
int fake_event_create(void **event, unsigned flags);
int fake_event_destroy(void *event);
int fake_event_record(void *event, void *stream);
int fake_event_query(void *event);
int fake_event_synchronize(void *event);
int fake_event_elapsed_time(float *milliseconds, void *from, void *to);
int fake_begin_capture(void *stream, int mode);
int fake_end_capture(void *stream, void **graph);
int fake_graph_instantiate(void **exec, void *graph, unsigned long long flags);
int fake_graph_launch(void *exec, void *stream);
int fake_graph_destroy(void *graph); /* and of what was instantiated */

/* A kernel as module_get_function() gives it. */
typedef struct fake_function {
    const char *name;
    mo_emulated_entry entry;
    size_t args_bytes;
    unsigned shared_limit;
    struct fake_function *next;
} fake_function;
int fake_enqueue_kernel(const fake_function *function, const uint32_t grid[3], const uint32_t block[3],
                        uint32_t shared, void *stream, const void *args); /* locked */

#endif
