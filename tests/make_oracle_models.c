/* make_oracle_models FOLDER: writes the oracle models whose values a generator drew. FOLDER/drawn.txt says which; what was not
 * drawn is beside it in NAME.rest. `cc` of the machine that builds compiles this file, once for all builds of a tree.
 *
 * Of drawn.txt, a line each:
 *   model NAME BYTES SHA256 STATE INCREMENT   a file, and the generator's state before its first draw, in hexadecimal
 *   OFFSET COUNT DRAW FACTOR ROOT SHIFT       floats: SHIFT + FACTOR / sqrt(ROOT) * z, z being the standard normal numbers from
 *                                             the DRAWth on
 * Numbers are PCG64's (XSL-RR), made normal by a ziggurat of 256 layers, as NumPy's default_rng() makes them. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"

enum { LAYERS = 256, DRAWS = 1 << 21 };

static const uint64_t one = UINT64_C(1) << 52;
static const long double edge = 3.6541528853610087963519472518L; /* where the tail begins */

typedef struct layer {
    uint64_t inside; /* below it a number is under the curve */
    double width;    /* of a unit of 2^-52 */
    double height;   /* of the curve at its right end */
} layer;

typedef struct generator {
    unsigned __int128 state, increment;
} generator;

static layer layers[LAYERS];
static double normal[DRAWS];

static _Noreturn void fail(const char *what, const char *path)
{
    fprintf(stderr, "make_oracle_models: %s: %s%s%s\n", path, what, errno ? ": " : "",
            errno ? strerror(errno) : "");
    exit(1);
}

static void make_layers(void)
{
    const long double top = expl(-0.5L * edge * edge);
    const long double area = edge * top + sqrtl(acosl(-1) / 2) * erfcl(edge / sqrtl(2));
    layers[0] =
        (layer){(uint64_t)(edge * top / area * (long double)one), (double)(area / top / (long double)one), 1};
    long double x = edge;
    for (int i = LAYERS - 1; i > 0; i--) {
        const long double y = expl(-0.5L * x * x);
        const long double next = i > 1 ? sqrtl(-2 * logl(area / x + y)) : 0;
        layers[i] =
            (layer){(uint64_t)(next / x * (long double)one), (double)(x / (long double)one), (double)y};
        x = next;
    }
}

static uint64_t draw(generator *g)
{
    static const unsigned __int128 multiplier =
        (unsigned __int128)UINT64_C(0x2360ED051FC65DA4) << 64 | UINT64_C(0x4385DF649FCCF645);
    g->state = g->state * multiplier + g->increment;
    const uint64_t folded = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    const int turn = (int)(g->state >> 122);
    return folded >> turn | folded << (-turn & 63);
}

static double draw_uniform(generator *g)
{
    return (double)(draw(g) >> 11) * 0x1p-53;
}

static double draw_tail(generator *g, bool negative)
{
    for (;;) {
        const double x = -(1 / (double)edge) * log1p(-draw_uniform(g));
        const double y = -log1p(-draw_uniform(g));
        if (y + y > x * x) {
            return negative ? -((double)edge + x) : (double)edge + x;
        }
    }
}

static double draw_normal(generator *g)
{
    for (;;) {
        const uint64_t bits = draw(g);
        const int i = (int)(bits & 0xff);
        const uint64_t distance = bits >> 9 & (one - 1);
        const double x = (double)distance * (bits >> 8 & 1 ? -layers[i].width : layers[i].width);
        if (distance < layers[i].inside) {
            return x;
        }
        if (i == 0) {
            return draw_tail(g, distance >> 8 & 1);
        }
        if ((layers[i - 1].height - layers[i].height) * draw_uniform(g) + layers[i].height <
            exp(-0.5 * x * x)) {
            return x;
        }
    }
}

static unsigned __int128 read_hex(const char *text)
{
    unsigned __int128 value = 0;
    for (; *text; text++) {
        value = value << 4 | (unsigned)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
    }
    return value;
}

typedef struct model {
    char path[1024];
    char wanted[65];
    uint8_t *bytes;
    size_t size, done; /* up to here it is written */
    FILE *rest;
} model;

static void copy_rest(model *m, size_t end)
{
    if (end < m->done || end > m->size ||
        fread(m->bytes + m->done, 1, end - m->done, m->rest) != end - m->done) {
        fail("its .rest has too few bytes", m->path);
    }
    m->done = end;
}

static void begin_model(model *m, const char *folder, const char *line, int *drawn)
{
    char name[256], state[33], increment[33];
    if (sscanf(line, "model %255s %zu %64s %32s %32s", name, &m->size, m->wanted, state, increment) != 5) {
        fail(line, "drawn.txt");
    }
    snprintf(m->path, sizeof m->path, "%s/%s.rest", folder, name);
    m->rest = fopen(m->path, "rb");
    m->bytes = malloc(m->size);
    m->done = 0;
    if (!m->rest || !m->bytes) {
        fail("cannot be read", m->path);
    }
    snprintf(m->path, sizeof m->path, "%s/%s", folder, name);
    generator g = {read_hex(state), read_hex(increment)};
    for (*drawn = 0; *drawn < DRAWS && (size_t)*drawn < m->size / 4 + 400000; ++*drawn) {
        normal[*drawn] = draw_normal(&g);
    }
}

/* Under a name of this process first: several builds may write it at once. */
static void end_model(model *m)
{
    if (!m->bytes) {
        return;
    }
    copy_rest(m, m->size);
    mo_digest digest;
    uint8_t sum[MO_DIGEST_BYTES];
    char text[2 * MO_DIGEST_BYTES + 1], path[1100];
    mo_digest_begin(&digest);
    mo_digest_add(&digest, m->bytes, m->size);
    mo_digest_end(&digest, sum);
    for (int i = 0; i < MO_DIGEST_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", sum[i]);
    }
    errno = 0;
    if (strcmp(text, m->wanted) != 0) {
        fail("what was made has another SHA-256 than drawn.txt says", m->path);
    }
    snprintf(path, sizeof path, "%s.%ld", m->path, (long)getpid());
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(m->bytes, 1, m->size, out) != m->size || fclose(out) != 0 ||
        rename(path, m->path) != 0) {
        fail("cannot be written", path);
    }
    fclose(m->rest);
    free(m->bytes);
    m->bytes = NULL;
}

static void add_floats(model *m, const char *line, int drawn)
{
    size_t offset, count, first;
    double factor, root, shift;
    errno = 0;
    if (sscanf(line, "%zu %zu %zu %lf %lf %lf", &offset, &count, &first, &factor, &root, &shift) != 6 ||
        !m->bytes || first + count > (size_t)drawn || offset + 4 * count > m->size) {
        fail(line, "drawn.txt");
    }
    copy_rest(m, offset);
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(shift + factor / sqrt(root) * normal[first + i]);
        memcpy(m->bytes + offset + 4 * i, &value, sizeof value);
    }
    m->done += 4 * count;
}

int main(int argc, char **argv)
{
    char path[1024], line[512];
    snprintf(path, sizeof path, "%s/drawn.txt", argc == 2 ? argv[1] : ".");
    FILE *list = fopen(path, "r");
    if (!list) {
        fail("cannot be read", path);
    }
    make_layers();
    model now = {.bytes = NULL};
    int drawn = 0;
    while (fgets(line, sizeof line, list)) {
        if (strncmp(line, "model ", 6) == 0) {
            end_model(&now);
            begin_model(&now, argv[1], line, &drawn);
        } else {
            add_floats(&now, line, drawn);
        }
    }
    end_model(&now);
    fclose(list);
    return 0;
}
