// Of the table of architectures (model_family_table.cc) MiniMax-Text-01 and M1, and MiniMax M3: the
// numbers that their files give under names of their own, what the classes assume, and which layers
// attend, or attend the blocks that an index chooses.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

namespace minimax_fields {
constexpr ConfigField scale(float AddedScales::*member, std::string_view hf) {
  return {member, "", hf, 1e-6, 1e6};
}
}  // namespace minimax_fields

// Of each scale the library's name, and that of the hub's own class. A GGUF file has one for all
// rows.
inline constexpr std::array kMiniMaxFields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
                Presence::kRequired},
    ConfigField{&ExpertConfig::count, "expert_count", "num_local_experts", 1,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "expert_used_count", "num_experts_per_tok", 1,
                kModelLimits.experts_max},
    ConfigField{&AddedScales::full_rows, "residual_scale", "full_attn_alpha_factor", 1e-6, 1e6},
    minimax_fields::scale(&AddedScales::full_branch, "full_attn_beta_factor"),
    minimax_fields::scale(&AddedScales::linear_rows, "linear_attn_alpha_factor"),
    minimax_fields::scale(&AddedScales::linear_branch, "linear_attn_beta_factor"),
    minimax_fields::scale(&AddedScales::network_rows, "mlp_alpha_factor"),
    minimax_fields::scale(&AddedScales::network_branch, "mlp_beta_factor"),
    minimax_fields::scale(&AddedScales::full_rows, "layernorm_full_attention_alpha"),
    minimax_fields::scale(&AddedScales::full_branch, "layernorm_full_attention_beta"),
    minimax_fields::scale(&AddedScales::linear_rows, "layernorm_linear_attention_alpha"),
    minimax_fields::scale(&AddedScales::linear_branch, "layernorm_linear_attention_beta"),
    minimax_fields::scale(&AddedScales::network_rows, "layernorm_mlp_alpha"),
    minimax_fields::scale(&AddedScales::network_branch, "layernorm_mlp_beta")};
inline constexpr std::array<std::string_view, 3> kMiniMaxClasses{
    "MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"};

inline constexpr std::array kM3Fields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
                Presence::kRequired},
    ConfigField{&ExpertConfig::count, "expert_count", "num_local_experts", 1,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "expert_used_count", "num_experts_per_tok", 1,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::shared_width, "", "shared_intermediate_size", 1,
                kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::scale, "", "routed_scaling_factor", 0, 1e6},
    ConfigField{&ExpertConfig::gate_slope, "", "swiglu_alpha", 1e-6, 1e6},
    ConfigField{&ExpertConfig::gate_limit, "", "swiglu_limit", 1e-6, 1e6},
    ConfigField{&BlockIndexConfig::heads, "", "index_n_heads", 1, kModelLimits.heads_max},
    ConfigField{&BlockIndexConfig::dim, "", "index_head_dim", 2, kModelLimits.head_dim_max},
    ConfigField{&BlockIndexConfig::tokens, "", "index_block_size", 1, kModelLimits.index_top_max},
    ConfigField{&BlockIndexConfig::top, "", "index_topk_blocks", 1, kModelLimits.index_top_max},
    ConfigField{&BlockIndexConfig::local, "", "index_local_blocks", 0, kModelLimits.index_top_max}};
inline constexpr std::array<std::string_view, 2> kMiniMaxM3Classes{
    "MiniMaxM3VLForCausalLM", "MiniMaxM3SparseForConditionalGeneration"};
inline constexpr std::array<std::string_view, 2> kSwiGluOai{"silu", "swigluoai"};

void minimax_defaults(ModelConfig& config);
void minimax_m3_defaults(ModelConfig& config);

// After the numbers of a config.json: which layers attend.
Status read_minimax(const Json& json, const ConfigSource& source, ModelConfig& config);
// What else MiniMax M3 says, behind the lists of networks. Nothing of others.
Status read_minimax_m3(const Json& json, const ConfigSource& source, ModelConfig& config);
// Which layers attend, of a GGUF file. Nothing of other architectures.
Status read_gguf_minimax(const GgufFile& file, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
