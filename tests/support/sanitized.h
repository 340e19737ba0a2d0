/* Whether a sanitizer watches. It takes its time and looks at memory and threads, not at values: tests that compare the
 * same thing over and over take fewer samples then. A build without one takes them all. */
#ifndef MO_TESTS_SANITIZED_H
#define MO_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED_MEMORY = 1, SANITIZED_THREADS = 0 };
#elif defined(__SANITIZE_THREAD__)
enum { SANITIZED_MEMORY = 0, SANITIZED_THREADS = 1 };
#else
enum { SANITIZED_MEMORY = 0, SANITIZED_THREADS = 0 };
#endif
enum { SANITIZED = SANITIZED_MEMORY || SANITIZED_THREADS };

#endif
