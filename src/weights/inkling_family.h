// Of the table of architectures (model_family_table.cc) Inkling: its numbers, what its class
// assumes, which layers slide, and what scores gain by distances.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array<std::string_view, 2> kInklingClasses{"InklingForCausalLM",
                                                                 "InklingForConditionalGeneration"};
inline constexpr std::array kInklingFields{
    ConfigField{&ModelConfig::rms_eps, "", "rms_norm_eps", 1e-20, 1, Presence::kRequired},
    ConfigField{&ModelConfig::context_length, "", "model_max_length", 1,
                kModelLimits.context_length_max},
    // Of two names of one number the later wins, as in the class.
    ConfigField{&ModelConfig::logit_divisor, "", "logits_mup_width_multiplier", 1e-9, 1e6},
    ConfigField{&ModelConfig::logit_divisor, "", "embedding_multiplier", 1e-9, 1e6},
    ConfigField{&OutputHead::tokens, "", "unpadded_vocab_size", 1, kModelLimits.vocab_max,
                Presence::kNullable},
    ConfigField{&MixerConfig::conv_taps, "", "conv_kernel_size", 2, kModelLimits.conv_taps_max},
    ConfigField{&MixerConfig::conv_taps, "", "sconv_kernel_size", 2, kModelLimits.conv_taps_max},
    ConfigField{&HeadSizes::sliding_heads, "", "swa_num_attention_heads", 1,
                kModelLimits.heads_max},
    ConfigField{&HeadSizes::sliding_kv_heads, "", "swa_num_key_value_heads", 1,
                kModelLimits.heads_max},
    ConfigField{&HeadSizes::sliding_head_dim, "", "swa_head_dim", 2, kModelLimits.head_dim_max},
    ConfigField{&ExpertConfig::count, "", "n_routed_experts", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::count, "", "num_local_experts", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "", "num_experts_per_tok", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::shared_count, "", "n_shared_experts", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::width, "", "moe_intermediate_size", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::scale, "", "route_scale", 1e-9, 1e6},
    ConfigField{&ExpertConfig::dense_first, "", "dense_mlp_idx", 0, kModelLimits.layers_max,
                Presence::kNullable}};

void inkling_defaults(ModelConfig& config);

// A config.json of the class with the names that other classes have for its window, its kinds of
// layers and the widths of its networks.
Json inkling_spelling(const Json& json);
// After the numbers of a config.json. Nothing of other architectures.
Status read_inkling(const Json& json, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
