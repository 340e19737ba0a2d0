/* make_narrow NAME FILE: a model with the layers and experts of the published one of that name, and tiny matrices, so that a small
 * machine can serve it: what the server does for every expert costs as much as with the real one, the rest next to nothing. */
#include <stdio.h>

#include "synth/synth.h"

static mo_shape narrow(const mo_shape *published)
{
    mo_shape s = *published;
    s.width = 256;
    s.heads = 4;
    s.kv_heads = 2;
    s.head = s.rotated = 64;
    s.vocabulary = 4096;
    s.ffn = s.ffn ? 256 : 0;
    s.expert_ffn = 64;
    s.shared_ffn = s.shared_ffn ? 64 : 0;
    if (s.latent) {
        s.latent = 64, s.rotated = 32, s.head = 96, s.plain = 32, s.head_out = 64, s.kv_heads = 1;
        s.query_rank = s.query_rank ? 64 : 0;
    }
    return s;
}

int main(int argc, char **argv)
{
    const mo_shape *published = argc == 3 ? mo_shape_named(argv[1]) : NULL;
    if (!published || published->experts == 0) {
        fprintf(
            stderr,
            "usage: make_narrow NAME FILE, with the name of a model with experts (moraine synth --list)\n");
        return 2;
    }
    const mo_shape shape = narrow(published);
    mo_synth_options options = mo_synth_options_default();
    options.overwrite = true;
    mo_error err;
    if (mo_synth_write(&shape, NULL, argv[2], &options, NULL, NULL, &err) != MO_OK) {
        fprintf(stderr, "make_narrow: %s\n", err.detail);
        return 1;
    }
    return 0;
}
