/* MTP heads (nextn): a layer after the others in the file, and the few tensors that make its input. */
#include <stdio.h>

#include "base/status.h"
#include "model/family.h"

bool mo_family_has_head(mo_binder *b, const mo_family *family, const mo_keys *keys)
{
    return family->head && keys->mtp_layers && mo_bind_has(b, "blk.%d.nextn.eh_proj", keys->layers);
}

bool mo_family_finds_head(const mo_gguf *gguf)
{
    mo_error err;
    mo_keys keys;
    mo_binder b = {.gguf = gguf, .err = &err};
    const mo_family *family =
        mo_keys_read(gguf, &keys, &err) == MO_OK ? mo_family_find(keys.architecture) : NULL;
    return family && mo_family_has_head(&b, family, &keys);
}

/* Binds the head's own copy; without one, only describes what it borrows from its model. */
static void bind_table(mo_binder *b, const mo_keys *k, mo_weights *out)
{
    char name[64];
    *out = (mo_weights){.rows = k->vocab, .cols = k->width};
    if (mo_bind_has(b, "blk.%d.nextn.embed_tokens", k->layers)) {
        snprintf(name, sizeof name, "blk.%d.nextn.embed_tokens", k->layers);
        mo_bind_table(b, out, k->width, k->vocab, name);
    }
}

static void bind_norm(mo_binder *b, const mo_keys *k, const mo_family *family, const float **out)
{
    if (mo_bind_has(b, "blk.%d.nextn.shared_head_norm", k->layers)) {
        mo_bind_vector(b, out, k->width, "blk.%d.nextn.shared_head_norm.weight", k->layers);
    } else if (family->head_norm && mo_bind_has(b, "blk.%d.%s", k->layers, family->head_norm)) {
        mo_bind_vector(b, out, k->width, "blk.%d.%s.weight", k->layers, family->head_norm);
    } else {
        mo_bind_vector(b, out, k->width, "%s", family->out_norm ? family->out_norm : "output_norm.weight");
    }
}

void mo_family_describe_head(mo_binder *b, mo_model_spec *spec)
{
    mo_keys k;
    const mo_family *family = mo_family_of(b);
    if (!family) {
        return;
    }
    b->status = mo_keys_read(b->gguf, &k, b->err);
    if (b->status != MO_OK) {
        return;
    }
    if (!mo_family_has_head(b, family, &k)) {
        mo_bind_fail(b, MO_EUNSUPPORTED, "%s: the file has no MTP head that this version can run",
                     mo_gguf_part_path(b->gguf, 0));
        return;
    }
    *spec = (mo_model_spec){.layer_count = 1,
                            .width = k.width,
                            .vocab = k.vocab,
                            .context = k.context,
                            .eps = k.eps,
                            .out_eps = k.eps,
                            .centered = k.centered,
                            .out_centered = k.centered || family->head_centers,
                            .embed_scale = 1.0f};
    if (family->head_centers) {
        spec->out_eps = (float)mo_part_real(b, &k, "attention.layer_norm_epsilon", (double)k.eps);
    }
    const int n = k.layers;
    spec->layers = mo_bind_alloc(b, 1, sizeof *spec->layers);
    mo_bind_linear(b, &spec->head.join, 2 * k.width, k.width, "blk.%d.nextn.eh_proj", n);
    mo_bind_vector(b, &spec->head.embed_norm, k.width, "blk.%d.nextn.enorm.weight", n);
    mo_bind_vector(b, &spec->head.state_norm, k.width, "blk.%d.nextn.hnorm.weight", n);
    bind_norm(b, &k, family, &spec->out_norm);
    bind_table(b, &k, &spec->embed);
    if (mo_bind_has(b, "blk.%d.nextn.shared_head_head", n)) {
        mo_bind_linear(b, &spec->output, k.width, k.vocab, "blk.%d.nextn.shared_head_head", n);
    }
    if (b->status == MO_OK) {
        family->head(b, &k, n, spec->layers);
    }
    if (b->status == MO_OK && family->head_rest) {
        family->head_rest(b, &k, spec);
    }
    if (b->status == MO_OK) {
        mo_family_check(b, spec);
    }
}

mo_status mo_head_borrow(mo_model_spec *head, const mo_model_spec *model, mo_error *err)
{
    if (head->width != model->width || head->vocab != model->vocab) {
        return mo_fail(
            err, MO_EINVAL,
            "the MTP head is for a model of %lld values and %lld tokens, but the model has %lld and "
            "%lld; name the head that was made for it, or choose `speculate` draft to guess with the whole "
            "model",
            (long long)head->width, (long long)head->vocab, (long long)model->width, (long long)model->vocab);
    }
    if (head->streams.count != model->streams.count) {
        return mo_fail(
            err, MO_EINVAL,
            "the MTP head is for a model of %d residual streams, but the model has %d; name the head "
            "that was made for it",
            head->streams.count ? head->streams.count : 1, model->streams.count ? model->streams.count : 1);
    }
    if (!head->embed.data) {
        head->embed = model->embed;
    }
    if (!mo_linear_present(&head->output)) {
        head->output = model->output;
    }
    head->embed_scale = model->embed_scale;
    head->softcap = model->softcap;
    return MO_OK;
}
