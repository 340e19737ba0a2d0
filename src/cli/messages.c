#include "cli/messages.h"

#include <stdio.h>
#include <string.h>

#include "cli/print/wrapping.h"

enum { MESSAGE_BYTES = 2048 };

/* Every setting that the library's messages name; tools/messages.sh compares. */
static const struct {
    const char *setting, *option;
} names[] = {
    {"`adapter_bytes`", "the memory for adapters"},
    {"`adapter_count`", "the number of adapters"},
    {"`adapter_scales`", "the scales of --lora"},
    {"`adapters`", "--lora"},
    {"`batch`", "--batch"},
    {"`bias`", "--logit-bias"},
    {"`budget_bytes`", "--budget"},
    {"`chat_template`", "--chat-template"},
    {"`context`", "--ctx"},
    {"`cpu`", "memory"},
    {"`date`", "the date"},
    {"`device`", "--device"},
    {"`directory`", "--dir"},
    {"`disk`", "disk"},
    {"`divide`", "--divide"},
    {"`draft_max`", "--draft-max"},
    {"`draft_min`", "the fewest guesses of a step"},
    {"`draft_model`", "--draft-model"},
    {"`draft_p_min`", "the least probability of a guess"},
    {"`dry_breakers`", "--dry-sequence-breaker"},
    {"`effort`", "reasoning_effort"},
    {"`embedding`", "--embedding"},
    {"`experts`", "--experts"},
    {"`gpu`", "GPU"},
    {"`grammar`", "--grammar"},
    {"`hot_cache.auto_reserve_mib`", "--moe-hot-cache-auto-reserve-mib"},
    {"`hot_cache.file`", "--moe-hot-cache FILE"},
    {"`hot_cache.layer_curve`", "--moe-hot-cache-layer-curve"},
    {"`hot_cache.max_mib`", "--moe-hot-cache-max-mib"},
    {"`hot_cache.update_rate`", "--moe-hot-cache-update-rate"},
    {"`hot_cache.weighting`", "--moe-hot-cache-weighting"},
    {"`ignore_end`", "--ignore-eos"},
    {"`image_max_tokens`", "--image-max-tokens"},
    {"`image_min_tokens`", "--image-min-tokens"},
    {"`io`", "--io"},
    {"`isa`", "--isa"},
    {"`kept_bytes`", "the memory for cached sessions"},
    {"`kept_device_bytes`", "the GPU memory for cached sessions"},
    {"`kv`", "--kv"},
    {"`layers`", "--layers"},
    {"`logprobs`", "the number of log probabilities"},
    {"`map`", "--mmap"},
    {"`max_tokens`", "--max-tokens"},
    {"`min_p`", "--min-p"},
    {"`mmproj`", "--mmproj"},
    {"`output`", "--output"},
    {"`overwrite`", "--force"},
    {"`pc_ram_bytes`", "the RAM"},
    {"`perf_mode`", "LLAMA_MOE_LAYER_PERF"},
    {"`perf_out`", "--moe-layer-perf-out"},
    {"`policy`", "--policy"},
    {"`positions`", "the total context of all sessions"},
    {"`postfetch`", "--postfetch"},
    {"`prediction`", "the prediction of the answer"},
    {"`profile`", "--profile"},
    {"`prompt_precision`", "--prompt-precision"},
    {"`ram_bytes`", "--ram"},
    {"`raw`", "--raw"},
    {"`readers`", "--readers"},
    {"`rest`", "--rest"},
    {"`samplers`", "--samplers"},
    {"`schema`", "--schema"},
    {"`sessions`", "the number of sessions"},
    {"`skew`", "--skew"},
    {"`skip_missing`", "--skip-missing"},
    {"`speculate`", "--speculate"},
    {"`step`", "--step"},
    {"`stop`", "--stop"},
    {"`temperature`", "--temp"},
    {"`thinking`", "the mode of thinking"},
    {"`thought_tokens`", "the tokens of thought"},
    {"`threads`", "--threads"},
    {"`timeout_s`", "--rank-timeout"},
    {"`tokens`", "the text"},
    {"`tool_choice`", "the choice of tools"},
    {"`tools`", "tools"},
    {"`top_p`", "--top-p"},
    {"`type`", "--type"},
    {"`vocabulary`", "--vocabulary"},
    {"`vram_bytes`", "--vram"},
    {"`vram_each`", "--vram"},
    {"`vram_each_count`", "the number of --vram sizes"},
    {"`warm`", "--warm"},
    {"`warm_file`", "--warm-file"},
};

/* The option for the setting at the beginning of a text, or NULL. */
static const char *option_at(const char *text, size_t *length)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *length = strlen(names[i].setting);
        if (strncmp(text, names[i].setting, *length) == 0) {
            return names[i].option;
        }
    }
    return NULL;
}

void cli_name_options(char *text, size_t size)
{
    char made[MESSAGE_BYTES];
    size_t used = 0;
    for (const char *at = text; *at && used + 1 < sizeof made;) {
        size_t length = 1;
        const char *option = *at == '`' ? option_at(at, &length) : NULL;
        if (option) {
            used += (size_t)snprintf(made + used, sizeof made - used, "%s", option);
            at += length;
        } else {
            made[used++] = *at++;
        }
    }
    made[used < sizeof made ? used : sizeof made - 1] = '\0';
    snprintf(text, size, "%s", made);
}

void cli_say_error(const char *command, const mo_error *err)
{
    char said[MESSAGE_BYTES];
    snprintf(said, sizeof said, "%s", err->detail);
    cli_name_options(said, sizeof said);
    cli_wrapping_say("moraine %s: %s", command, said);
}
