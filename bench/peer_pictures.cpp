// peer_pictures FILE SIDE ROUNDS THREADS|gpu: seconds that llama.cpp's mtmd takes to encode a picture of SIDE x SIDE pixels with an encoder; the best of some
// rounds, after one that does not count. It calls what mtmd itself calls, so that no text model has to be there. Built by pictures.sh
// with the sources of llama.cpp.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "clip-impl.h"
#include "clip.h"

int main(int argc, char ** argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: peer_pictures FILE SIDE ROUNDS THREADS|gpu\n");
        return 2;
    }
    const int side = atoi(argv[2]), rounds = atoi(argv[3]);
    const bool gpu = strcmp(argv[4], "gpu") == 0;
    const int threads = gpu ? 1 : atoi(argv[4]);
    clip_context_params params = {};
    params.use_gpu = gpu;
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = params.image_max_tokens = -1;
    clip_ctx * context = clip_init(argv[1], params).ctx_v;
    if (!context) {
        fprintf(stderr, "peer_pictures: %s is not read\n", argv[1]);
        return 1;
    }
    std::vector<float> pixels((size_t)side * side * 3), rows;
    for (size_t i = 0; i < pixels.size(); i++) {
        pixels[i] = (float)(uint8_t)(i * i / 37 + i) / 255.0f * 2.0f - 1.0f;
    }
    clip_image_f32 image;
    image.set_size({side, side}, false, false);
    image.cpy_buf(pixels);
    double best = 1e9;
    for (int i = 0; i <= rounds; i++) {
        const auto from = std::chrono::steady_clock::now();
        if (!clip_image_encode(context, threads, &image, rows)) {
            fprintf(stderr, "peer_pictures: it does not encode\n");
            return 1;
        }
        const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
        if ((i > 0 || rounds == 0) && took < best) {
            best = took;
        }
    }
    printf("%.4f\n", best);
    clip_free(context);
    return 0;
}
