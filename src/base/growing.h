/* Growing: structs of the public API whose size the caller names, so that a program keeps running when a later library
 * has more members. Members are only ever added behind the last, and never inside what was padding. */
#ifndef MO_BASE_GROWING_H
#define MO_BASE_GROWING_H

#include "moraine.h"

/* Writes defaults (whose own first member is a size_t) to a caller's options of `size` bytes, and the size. What this
 * library does not know becomes 0. */
void mo_options_write(void *callers, size_t size, const void *defaults, size_t own_size);

/* The caller's options over the defaults that *own holds. NULL leaves the defaults. MO_EINVAL when the size was not set,
 * or a member behind the last that we know is not 0; `name` is the struct's. */
mo_status mo_options_read(void *own, size_t own_size, const void *callers, const char *name, mo_error *err);

/* Fills an info or a report of `size` bytes; what this library does not know becomes 0. */
void mo_report_write(void *callers, size_t size, const void *own, size_t own_size);

/* MO_EINVAL when a reserve is not 0. */
mo_status mo_reserve_check(const uint64_t *reserved, size_t count, const char *name, mo_error *err);

/* Public functions may be called without an error; what they call may not. The first statement of each that takes one. */
#define MO_OWN_ERROR(err)                                                                                    \
    mo_error own_error = {MO_OK, {0}};                                                                       \
    if (!(err)) {                                                                                            \
        (err) = &own_error;                                                                                  \
    }

/* Public functions refuse NULL for what they need, with MO_EINVAL and the parameter's name: MO_REQUIRE(err, model, out). It stands
 * behind MO_OWN_ERROR(), before anything is touched. _AS: the names of the header, where the parameters have others. */
#define MO_REQUIRE(err, ...) MO_REQUIRE_AS(err, #__VA_ARGS__, __VA_ARGS__)
#define MO_REQUIRE_AS(err, names, ...)                                                                       \
    {                                                                                                        \
        const void *const needed_here[] = {__VA_ARGS__};                                                     \
        if (!mo_required(needed_here, sizeof needed_here / sizeof *needed_here, __func__, names, err)) {     \
            return MO_EINVAL;                                                                                \
        }                                                                                                    \
    }

/* MO_EINVAL about an argument of a public function, such as "`count` of mo_session_feed() must be 1 to 256, not 0": the
 * format is what follows the name. MO_REFUSE() is for the function's own body. */
mo_status mo_refuse(mo_error *err, const char *argument, const char *function, const char *fmt, ...)
    MO_PRINTF(4, 5);
#define MO_REFUSE(err, argument, ...) mo_refuse(err, argument, __func__, __VA_ARGS__)

/* The same about a member of a struct: "`step` of mo_feed must be 0 or more, not -1". */
mo_status mo_refuse_member(mo_error *err, const char *structure, const char *member, const char *fmt, ...)
    MO_PRINTF(4, 5);

/* MO_EINVAL for an argument that names a file, but is empty. */
mo_status mo_check_path(const char *path, const char *argument, const char *function, mo_error *err);

/* The same for a member of options that may be NULL. */
mo_status mo_check_file(const char *path, const char *member, mo_error *err);

/* False with MO_EINVAL where one is NULL; names: theirs, with ", " between them. */
bool mo_required(const void *const *pointers, size_t count, const char *function, const char *names,
                 mo_error *err);

#endif
