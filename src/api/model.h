/* What an open model is made of, for the files that implement the public API. */
#ifndef MO_API_MODEL_H
#define MO_API_MODEL_H

#include "api/cluster.h"
#include "dialogue/style.h"
#include "engine/adapter.h"
#include "gpu/expert_device.h"
#include "gpu/gpu.h"
#include "grammar/lexicon.h"
#include "grammar/mask_thread.h"
#include "open/learning.h"
#include "speculate/depth.h"
#include "template/chat_template.h"
#include "text/formats.h"
#include "text/tokenizer.h"

typedef struct mo_model_encoder mo_model_encoder; /* of pictures: image.c */
typedef struct mo_reports mo_reports;             /* the counters that are published: report.c */

struct mo_model {
    mo_pool *pool;
    mo_opened opened;
    mo_checkpoint *checkpoint; /* that of `opened` */
    bool mapped;
    char *disk_path;      /* its file, where what its disk gives is to be learned; NULL: nothing is learned */
    char disk_method[96]; /* written when the model is opened */
    mo_device *device;    /* NULL: none; the first of several */
    mo_device *others[MO_DEVICES - 1]; /* the rest of them; NULL: none */
    unsigned without; /* automatically chosen GPUs that failed while they were opened, one bit each */
    bool again;       /* it is to be opened again without them */
    mo_gpu *gpu;      /* the model on it; the engine stops using it when the device is lost */
    mo_gpu_expert_device *expert_device; /* or, where experts are all that is here, these on it */
    char device_name[256];               /* of several, all names */
    double probed_link_bytes_s;          /* to the device; 0: not measured */
    double probed_experts_bytes_s;       /* the same in copies of experts; likewise */
    double probed_host_bytes_s;          /* of memory under the CPU and copies at once; likewise */
    mo_learning *learning;               /* under the engine's lock */
    pthread_mutex_t profile_lock; /* what mo_model_profile() reads of it is changed under this lock too */
    mo_engine *engine;
    mo_layer_range range;                     /* the layers that are here; count 0: all */
    mo_expert_range experts;                  /* and of their experts those that are */
    mo_cluster *cluster;                      /* whose ranks have the rest; NULL: all is here */
    mo_leader *leader;                        /* of the ranks with other layers, */
    mo_experts_leader *asker;                 /* or of those with other experts */
    mo_adapter_use adapters[MO_ADAPTERS_MAX]; /* that were opened with it, as new sessions have them */
    int adapter_count;
    mo_model_encoder *encoder; /* NULL: it reads no pictures */
    mo_reports *reports;
    bool guess_text;         /* guesses may come from the text */
    mo_step_times times;     /* of steps by rows, for speculative decoding */
    atomic_llong unaccepted; /* guesses that came true behind the end of an answer */
    mo_tokenizer *tokenizer; /* NULL: the file has no vocabulary */
    mo_lexicon
        *lexicon; /* the vocabulary for constraints, read when the first is opened; NULL with the tokenizer */
    pthread_mutex_t masks_lock;
    mo_mask_thread *masks;      /* of constraints, opened for the first generation that has one */
    const mo_chat_format *chat; /* as it is recognized; NULL: it is not */
    mo_template *format;        /* that of `chat`, where there is no other */
    char *given_template;       /* in the place of those in its file; NULL: none */
    mo_chat_template *chat_template, *tool_template; /* of its file; NULL: none, or one that cannot be read */
    mo_dialogue dialogue;                            /* how it writes thoughts and calls */
    mo_error no_tokenizer;                           /* why not */
};

/* The model on its device, as long as it is not lost. */
static inline mo_gpu *mo_model_gpu(const mo_model *m)
{
    return atomic_load(&m->engine->accelerator) ? m->gpu : NULL;
}

/* Where devices have experts of a layer; NULL: there is no device, or it is lost. Under the engine's lock. */
static inline const mo_where *mo_model_where(const mo_model *m, int layer)
{
    const mo_gpu *gpu = mo_model_gpu(m);
    return gpu                ? mo_gpu_where(gpu, layer)
           : m->expert_device ? mo_gpu_expert_device_where(m->expert_device, layer)
                              : NULL;
}

/* The thread that computes masks (grammar.c), started by the first call. */
mo_status mo_model_masks(mo_model *model, mo_mask_thread **out, mo_error *err);

/* Reads the templates of the model's file, or the given one, when its tokenizer is there (prompt.c). A given one that cannot be
 * read is an error; the file's are not. */
mo_status mo_model_open_templates(mo_model *model, const char *given, mo_error *err);
void mo_model_close_templates(mo_model *model);

/* Opens a part of a model, without what is about text, for a rank that follows (follow.c). */
mo_status mo_model_open_part(const char *path, const mo_model_options *options, mo_layer_range range,
                             mo_expert_range experts, mo_model **out, mo_error *err);
/* Inputs of the plan for these options, without the automatically chosen GPUs whose bit is set. */
mo_status mo_model_find_resources(const mo_model_options *options, unsigned without, mo_resources *out,
                                  mo_error *err);

/* Opens the adapters that the options name (adapter.c), when the engine is there. */
mo_status mo_model_open_adapters(mo_model *model, const mo_model_options *options, mo_error *err);
void mo_model_close_adapters(mo_model *model);

/* Opens the encoder that the options name (image.c), when the engine is there. */
mo_status mo_model_open_encoder(mo_model *model, const mo_model_options *options, mo_error *err);
void mo_model_close_encoder(mo_model *model);
const char *mo_model_projector(const mo_model *model);     /* the encoder's kind; NULL: there is none */
uint64_t mo_model_encoder_identity(const mo_model *model); /* of its weights; 0: there is none */
/* What the encoder reads of a picture that was opened, in the size that it says; how many bytes that is, 0: no picture has this size; and the same
 * picture again, from that. */
const uint8_t *mo_image_pixels(const mo_image *image);
size_t mo_image_pixel_bytes(const mo_image_info *info);
mo_status mo_image_open_pixels(mo_model *model, const mo_image_info *info, const uint8_t *pixels,
                               mo_image **out, mo_error *err);
/* As mo_tokenizer_encode_marked(), and every MO_IMAGE_MARK that is not a stranger's becomes -1 between the tokens around pictures. The model has an
 * encoder and a tokenizer. */
mo_status mo_model_tokenize_pictures(const mo_model *model, const char *text, size_t length, unsigned flags,
                                     const uint8_t *input, size_t most, int32_t **ids, size_t *count,
                                     mo_error *err);
unsigned mo_model_token_flags(int flags); /* of mo_token_flags the tokenizer's (text.c) */

/* Begins to publish what the model's engine counts. The engine is opened; no step runs yet. */
mo_status mo_reports_open(mo_model *model, mo_error *err);
void mo_reports_close(mo_reports *reports); /* NULL is allowed */
/* These three at one moment; waits for no step. */
void mo_reports_look(mo_model *model, mo_counter_report *counters, mo_tier_report *tiers,
                     mo_split_report *split);
mo_split_report mo_split_report_of(const mo_split *split); /* split.c */

#endif
