// Of the table of architectures (model_family_table.cc) Kimi-Linear, and Ling 3 of the same layers:
// the numbers that their files give under names of their own, what the classes assume, and which
// layers are what.
#pragma once

#include <algorithm>
#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kKimiLinearFields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
                Presence::kRequired},
    ConfigField{&ModelConfig::context_length, "", "model_max_length", 1,
                kModelLimits.context_length_max},
    ConfigField{&ExpertConfig::count, "expert_count", "num_experts", 0, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "expert_used_count", "num_experts_per_token", 0,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::width, "expert_feed_forward_length", "moe_intermediate_size", 1,
                kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::shared_count, "expert_shared_count", "num_shared_experts", 0,
                kModelLimits.experts_max, Presence::kNullable},
    ConfigField{&ExpertConfig::scale, "expert_weights_scale", "routed_scaling_factor", 0, 1e6},
    ConfigField{&ExpertConfig::groups, "expert_group_count", "num_expert_group", 0,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::groups_used, "expert_group_used_count", "topk_group", 0,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::dense_first, "leading_dense_block_count", "first_k_dense_replace", 0,
                kModelLimits.layers_max},
    ConfigField{&LatentConfig::rank, "attention.kv_lora_rank", "kv_lora_rank", 1,
                kModelLimits.head_dim_max, Presence::kRequired},
    ConfigField{&LatentConfig::query_rank, "attention.q_lora_rank", "q_lora_rank", 0,
                kModelLimits.hidden_max, Presence::kNullable},
    ConfigField{&LatentConfig::plain_dim, "", "qk_nope_head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::rope_dim, "rope.dimension_count", "qk_rope_head_dim", 2,
                kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::key_dim, "attention.key_length_mla", "", 1,
                kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::value_dim, "attention.value_length_mla", "v_head_dim", 1,
                kModelLimits.head_dim_max},
    ConfigField{&MixerConfig::conv_taps, "ssm.conv_kernel", "linear_conv_kernel_dim", 2,
                kModelLimits.conv_taps_max},
    ConfigField{&MixerConfig::key_dim, "kda.head_dim", "linear_head_dim", 1,
                kModelLimits.head_dim_max},
    ConfigField{&MixerConfig::key_heads, "", "linear_num_heads", 1, kModelLimits.heads_max},
    ConfigField{&MixerConfig::drafting_layers, "", "num_nextn_predict_layers", 0,
                kModelLimits.layers_max, Presence::kNullable}};
inline constexpr std::array<std::string_view, 1> kKimiLinearClasses{"KimiLinearForCausalLM"};

inline constexpr auto kLing3Fields = [] {
  std::array<ConfigField, kKimiLinearFields.size() + 7> fields;
  auto next = std::copy(kKimiLinearFields.begin(), kKimiLinearFields.end(), fields.begin());
  *next++ = {&MixerConfig::conv_taps, "", "short_conv_kernel_size", 2, kModelLimits.conv_taps_max};
  *next++ = {&DeltaRuleConfig::decay_floor, "kda.gate_lower_bound", "kda_lower_bound", -1e3, -1e-3};
  *next++ = {&MixerConfig::drafting_layers, "nextn_predict_layers", "", 0, kModelLimits.layers_max};
  *next++ = {&ExpertConfig::shared_width, "expert_shared_feed_forward_length",
             "moe_shared_expert_intermediate_size", 1, kModelLimits.ffn_max};
  // The same by the names that transformers takes too.
  *next++ = {&ExpertConfig::used, "", "num_experts_per_tok", 0, kModelLimits.experts_max};
  *next++ = {&ExpertConfig::groups, "", "n_group", 0, kModelLimits.experts_max};
  *next++ = {&ExpertConfig::shared_count, "", "n_shared_experts", 0, kModelLimits.experts_max,
             Presence::kNullable};
  return fields;
}();
inline constexpr std::array<std::string_view, 2> kLing3Classes{"BailingHybridForCausalLM",
                                                               "BailingMoeV3ForCausalLM"};

void ling3_defaults(ModelConfig& config);

void kimi_linear_defaults(ModelConfig& config);

// After the numbers of a config.json: which layers attend, and what lies in an object of its own.
Status read_kimi_linear(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file. Nothing of other architectures.
Status read_gguf_kimi_linear(const GgufFile& file, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
