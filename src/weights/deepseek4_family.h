// Of the table of architectures (model_family_table.cc) DeepSeek V4: its numbers, what its class
// assumes, which layers share keys, and which networks go by the token.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array<std::string_view, 1> kDeepSeek4Classes{"DeepseekV4ForCausalLM"};
inline constexpr std::array kDeepSeek4Fields{
    ConfigField{&ModelConfig::rms_eps, "", "rms_norm_eps", 1e-20, 1, Presence::kRequired},
    ConfigField{&ExpertConfig::count, "", "n_routed_experts", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "", "num_experts_per_tok", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::width, "", "moe_intermediate_size", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::scale, "", "routed_scaling_factor", 0, 1e6},
    ConfigField{&ExpertConfig::gate_limit, "", "swiglu_limit", 1e-6, 1e6},
    ConfigField{&MixerConfig::drafting_layers, "", "num_nextn_predict_layers", 0,
                kModelLimits.layers_max, Presence::kNullable},
    ConfigField{&LatentConfig::query_rank, "", "q_lora_rank", 1, kModelLimits.hidden_max},
    ConfigField{&LatentConfig::index_heads, "", "index_n_heads", 1, kModelLimits.heads_max},
    ConfigField{&LatentConfig::index_dim, "", "index_head_dim", 2, kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::index_top, "", "index_topk", 1, kModelLimits.index_top_max},
    ConfigField{&GemmaConfig::streams, "", "hc_mult", 1, 16},
    ConfigField{&GemmaConfig::hyper_eps, "", "hc_eps", 0, 1}};

void deepseek4_defaults(ModelConfig& config);

// A config.json of the class with its two rotations where other classes have those of layers that
// slide and of the others, and with the names that the class takes for others of its own.
Json deepseek4_spelling(const Json& json);
// After the numbers of a config.json. Nothing of other architectures.
Status read_deepseek4(const Json& json, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
