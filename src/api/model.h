/* The struct of an open model, for the files that implement the public API. */
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

typedef struct mo_model_encoder mo_model_encoder; /* images: image.c */
typedef struct mo_reports mo_reports;             /* published counters: report.c */

struct mo_model {
    mo_pool *pool;
    mo_opened opened;
    mo_checkpoint *checkpoint; /* of `opened` */
    bool mapped;
    char *disk_path;                   /* its file, if its disk rate is to be learned; NULL: not learned */
    char disk_method[96];              /* set when the model is opened */
    mo_device *device;                 /* NULL: none; the first of several */
    mo_device *others[MO_DEVICES - 1]; /* the others; NULL: none */
    unsigned without;                  /* automatically chosen GPUs that failed to open, one bit each */
    bool again;                        /* open the model again without them */
    mo_gpu *gpu; /* the model's part on the device; the engine stops using it when the device is lost */
    mo_gpu_expert_device *expert_device; /* instead of gpu if this rank has only experts */
    char device_name[256];               /* all names if there are several */
    double probed_link_bytes_s;          /* to the device; 0: not measured */
    double probed_experts_bytes_s;       /* the same for copies of experts */
    double probed_host_bytes_s;          /* memory read by CPU and copies at once; 0: not measured */
    mo_learning *learning;               /* protected by the engine's lock */
    pthread_mutex_t profile_lock;        /* also protects the data read by mo_model_profile() */
    mo_engine *engine;
    mo_layer_range range;     /* layers of this rank; count 0: all */
    mo_expert_range experts;  /* experts of this rank */
    mo_cluster *cluster;      /* ranks with the rest; NULL: the whole model is here */
    mo_leader *leader;        /* leads ranks with other layers, */
    mo_experts_leader *asker; /* or ranks with other experts */
    /* adapters opened with the model, the default of new sessions */
    mo_adapter_use adapters[MO_ADAPTERS_MAX];
    int adapter_count;
    mo_model_encoder *encoder; /* NULL: the model does not accept images */
    mo_reports *reports;
    bool guess_text;         /* tokens may be drafted from the text */
    mo_step_times times;     /* of steps by rows, for speculative decoding */
    atomic_llong unaccepted; /* correct draft tokens after the end of an answer */
    mo_tokenizer *tokenizer; /* NULL: the file has no vocabulary */
    /* the vocabulary for constraints, built for the first one; NULL with the tokenizer */
    mo_lexicon *lexicon;
    pthread_mutex_t masks_lock;
    mo_mask_thread *masks;      /* for constraints, opened for the first constrained generation */
    const mo_chat_format *chat; /* the recognized format; NULL: none */
    mo_template *format;        /* of `chat`, if there is no other template */
    char *given_template;       /* replaces the file's templates; NULL: none */
    mo_chat_template *chat_template, *tool_template; /* from the file; NULL: none, or unreadable */
    mo_dialogue dialogue;                            /* how the model writes thoughts and tool calls */
    bool shows_calls;                                /* its template shows those of earlier messages */
    mo_error no_tokenizer;                           /* why there is no tokenizer */
};

/* The model on its device; NULL if the device is lost. */
static inline mo_gpu *mo_model_gpu(const mo_model *m)
{
    return atomic_load(&m->engine->accelerator) ? m->gpu : NULL;
}

/* Locations of a layer's experts on devices; NULL: no device, or it is lost. Under the engine's lock. */
static inline const mo_where *mo_model_where(const mo_model *m, int layer)
{
    const mo_gpu *gpu = mo_model_gpu(m);
    return gpu                ? mo_gpu_where(gpu, layer)
           : m->expert_device ? mo_gpu_expert_device_where(m->expert_device, layer)
                              : NULL;
}

/* The thread that computes masks (grammar.c); the first call starts it. */
mo_status mo_model_masks(mo_model *model, mo_mask_thread **out, mo_error *err);

/* Reads the given template, or the file's, when the tokenizer is open (prompt.c). An unreadable given
 * template is an error; the file's is not. */
mo_status mo_model_open_templates(mo_model *model, const char *given, mo_error *err);
void mo_model_close_templates(mo_model *model);

/* Opens part of a model without text support, for a follower rank (follow.c). */
mo_status mo_model_open_part(const char *path, const mo_model_options *options, mo_layer_range range,
                             mo_expert_range experts, mo_model **out, mo_error *err);
/* Finds the input of a plan for these options, without the automatically chosen GPUs whose bit is set. */
mo_status mo_model_find_resources(const mo_model_options *options, unsigned without, mo_resources *out,
                                  mo_error *err);

/* Opens the adapters in the options (adapter.c), after the engine. */
mo_status mo_model_open_adapters(mo_model *model, const mo_model_options *options, mo_error *err);
void mo_model_close_adapters(mo_model *model);

/* Opens the encoder in the options (image.c), after the engine. */
mo_status mo_model_open_encoder(mo_model *model, const mo_model_options *options, mo_error *err);
void mo_model_close_encoder(mo_model *model);
const char *mo_model_projector(const mo_model *model);     /* the encoder's kind; NULL: none */
uint64_t mo_model_encoder_identity(const mo_model *model); /* hash of its weights; 0: none */
/* The encoder's input for an open image, in the size of its info; its bytes, 0: no image has this size; and
 * opening an image from that input. */
const uint8_t *mo_image_pixels(const mo_image *image);
size_t mo_image_pixel_bytes(const mo_image_info *info);
mo_status mo_image_open_pixels(mo_model *model, const mo_image_info *info, const uint8_t *pixels,
                               mo_image **out, mo_error *err);
/* As mo_tokenizer_encode_marked(); every MO_IMAGE_MARK outside user input becomes -1 between the tokens
 * around images. The model must have an encoder and a tokenizer. */
mo_status mo_model_tokenize_pictures(const mo_model *model, const char *text, size_t length, unsigned flags,
                                     const uint8_t *input, size_t most, int32_t **ids, size_t *count,
                                     mo_error *err);
/* MO_EINVAL if there are unknown ones among them. */
mo_status mo_model_check_flags(int flags, const char *function, mo_error *err);
unsigned mo_model_token_flags(int flags); /* converts mo_token_flags to the tokenizer's (text.c) */

/* Starts publishing the engine's counters. The engine is open and no step runs yet. */
mo_status mo_reports_open(mo_model *model, mo_error *err);
void mo_reports_close(mo_reports *reports); /* accepts NULL */
/* All three at one point in time; does not wait for a step. */
void mo_reports_look(mo_model *model, mo_counter_report *counters, mo_tier_report *tiers,
                     mo_split_report *split);
mo_split_report mo_split_report_of(const mo_split *split); /* split.c */

#endif
