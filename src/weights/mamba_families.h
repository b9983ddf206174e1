// Of the table of architectures (model_family_table.cc) the families of state spaces (Mamba,
// Mamba-2): the numbers that their files give under names of their own, what their classes assume,
// and what else a file of theirs says.
#pragma once

#include <array>
#include <string>

#include "base/json.h"
#include "weights/gguf.h"
#include "weights/model_family.h"

namespace headrace {

namespace state_space_fields {
using SS = StateSpaceConfig;
constexpr double kScaleMax = 1e6;
constexpr ConfigField rms_eps(std::string_view hf) {
  return {&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", hf, 1e-20, 1,
          Presence::kRequired};
}
constexpr ConfigField heads(std::string_view hf) {
  return {&SS::heads, "ssm.time_step_rank", hf, 1, kModelLimits.heads_max, Presence::kRequired};
}
constexpr ConfigField groups(std::string_view hf) {
  return {&SS::groups, "ssm.group_count", hf, 1, kModelLimits.heads_max};
}
constexpr ConfigField state_dim(std::string_view hf) {
  return {&SS::state_dim, "ssm.state_size", hf, 1, kModelLimits.head_dim_max, Presence::kRequired};
}
constexpr ConfigField taps(std::string_view hf) {
  return {&MixerConfig::conv_taps,    "ssm.conv_kernel",  hf, 2,
          kModelLimits.conv_taps_max, Presence::kRequired};
}
constexpr ConfigField kDtRank{&SS::dt_rank, "ssm.time_step_rank", "", 1, kModelLimits.hidden_max};
constexpr ConfigField kInner{&SS::inner, "ssm.inner_size", "", 1, kModelLimits.ffn_max};
constexpr ConfigField head_dim(std::string_view hf) {
  return {&SS::head_dim, "", hf, 1, kModelLimits.head_dim_max};
}
constexpr ConfigField scale(ConfigMember member, std::string_view gguf, std::string_view hf) {
  return {member, gguf, hf, 1e-9, kScaleMax};
}
constexpr ConfigField experts(int32_t ExpertConfig::*member, std::string_view gguf,
                              std::string_view hf, double max,
                              Presence presence = Presence::kOptional) {
  return {member, gguf, hf, 0, max, presence};
}
}  // namespace state_space_fields

inline constexpr std::array kMambaFields{state_space_fields::rms_eps("layer_norm_epsilon"),
                                         state_space_fields::state_dim("state_size"),
                                         state_space_fields::taps("conv_kernel"),
                                         state_space_fields::kDtRank, state_space_fields::kInner};
inline constexpr std::array kJambaFields{
    state_space_fields::rms_eps("rms_norm_eps"),
    state_space_fields::state_dim("mamba_d_state"),
    state_space_fields::taps("mamba_d_conv"),
    state_space_fields::kDtRank,
    state_space_fields::kInner,
    state_space_fields::experts(&ExpertConfig::count, "expert_count", "num_experts",
                                kModelLimits.experts_max),
    state_space_fields::experts(&ExpertConfig::used, "expert_used_count", "num_experts_per_tok",
                                kModelLimits.experts_max)};
inline constexpr std::array kMamba2Fields{state_space_fields::rms_eps("layer_norm_epsilon"),
                                          state_space_fields::heads("num_heads"),
                                          state_space_fields::head_dim("head_dim"),
                                          state_space_fields::groups("n_groups"),
                                          state_space_fields::state_dim("state_size"),
                                          state_space_fields::taps("conv_kernel"),
                                          state_space_fields::kInner};
inline constexpr std::array kBambaFields{
    state_space_fields::rms_eps("rms_norm_eps"),  state_space_fields::heads("mamba_n_heads"),
    state_space_fields::groups("mamba_n_groups"), state_space_fields::state_dim("mamba_d_state"),
    state_space_fields::taps("mamba_d_conv"),     state_space_fields::kInner};
inline constexpr std::array kGraniteHybridFields{
    state_space_fields::rms_eps("rms_norm_eps"),
    state_space_fields::heads("mamba_n_heads"),
    state_space_fields::groups("mamba_n_groups"),
    state_space_fields::state_dim("mamba_d_state"),
    state_space_fields::taps("mamba_d_conv"),
    state_space_fields::kInner,
    state_space_fields::scale(&ModelConfig::attention_scale, "attention.scale",
                              "attention_multiplier"),
    state_space_fields::scale(&ModelConfig::embedding_scale, "embedding_scale",
                              "embedding_multiplier"),
    state_space_fields::scale(&ModelConfig::residual_scale, "residual_scale",
                              "residual_multiplier"),
    state_space_fields::scale(&ModelConfig::logit_divisor, "logit_scale", "logits_scaling"),
    state_space_fields::experts(&ExpertConfig::count, "expert_count", "num_local_experts",
                                kModelLimits.experts_max),
    state_space_fields::experts(&ExpertConfig::used, "expert_used_count", "num_experts_per_tok",
                                kModelLimits.experts_max),
    state_space_fields::experts(&ExpertConfig::shared_width, "expert_shared_feed_forward_length",
                                "shared_intermediate_size", kModelLimits.ffn_max)};
inline constexpr std::array kFalconH1Fields{
    state_space_fields::rms_eps("rms_norm_eps"),
    state_space_fields::heads("mamba_n_heads"),
    state_space_fields::groups("mamba_n_groups"),
    state_space_fields::state_dim("mamba_d_state"),
    state_space_fields::taps("mamba_d_conv"),
    state_space_fields::kInner,
    state_space_fields::scale(&ModelConfig::embedding_scale, "", "embedding_multiplier")};
inline constexpr std::array kNemotronHFields{
    state_space_fields::rms_eps("layer_norm_epsilon"),
    state_space_fields::heads("mamba_num_heads"),
    state_space_fields::head_dim("mamba_head_dim"),
    state_space_fields::groups("mamba_n_groups"),  // the older name
    state_space_fields::groups("n_groups"),
    state_space_fields::state_dim("ssm_state_size"),
    state_space_fields::taps("mamba_d_conv"),
    state_space_fields::taps("conv_kernel"),
    state_space_fields::kInner,
    ConfigField{&ModelConfig::head_dim, "", "attention_head_dim", 1, kModelLimits.head_dim_max},
    state_space_fields::experts(&ExpertConfig::count, "expert_count", "n_routed_experts",
                                kModelLimits.experts_max),
    state_space_fields::experts(&ExpertConfig::used, "expert_used_count", "num_experts_per_tok",
                                kModelLimits.experts_max),
    state_space_fields::experts(&ExpertConfig::width, "expert_feed_forward_length",
                                "moe_intermediate_size", kModelLimits.ffn_max),
    state_space_fields::experts(&ExpertConfig::shared_width, "expert_shared_feed_forward_length",
                                "moe_shared_expert_intermediate_size", kModelLimits.ffn_max),
    state_space_fields::experts(&ExpertConfig::groups, "expert_group_count", "n_group",
                                kModelLimits.experts_max),
    state_space_fields::experts(&ExpertConfig::groups_used, "expert_group_used_count", "topk_group",
                                kModelLimits.experts_max),
    state_space_fields::scale(&ExpertConfig::scale, "expert_weights_scale",
                              "routed_scaling_factor"),
    ConfigField{&MixerConfig::drafting_layers, "nextn_predict_layers", "num_nextn_predict_layers",
                0, kModelLimits.layers_max, Presence::kNullable}};

inline constexpr std::array kZamba2Fields{
    state_space_fields::rms_eps("rms_norm_eps"),
    state_space_fields::heads("n_mamba_heads"),
    state_space_fields::head_dim("mamba_headdim"),
    state_space_fields::groups("mamba_ngroups"),
    state_space_fields::state_dim("mamba_d_state"),
    state_space_fields::taps("mamba_d_conv"),
    ConfigField{&ModelConfig::head_dim, "", "attention_head_dim", 1, kModelLimits.head_dim_max}};

template <size_t kCount>
using StateSpaceClasses = std::array<std::string_view, kCount>;
inline constexpr StateSpaceClasses<1> kMambaClasses{"MambaForCausalLM"};
inline constexpr StateSpaceClasses<1> kFalconMambaClasses{"FalconMambaForCausalLM"};
inline constexpr StateSpaceClasses<1> kJambaClasses{"JambaForCausalLM"};
inline constexpr StateSpaceClasses<1> kMamba2Classes{"Mamba2ForCausalLM"};
inline constexpr StateSpaceClasses<1> kBambaClasses{"BambaForCausalLM"};
inline constexpr StateSpaceClasses<1> kGraniteHybridClasses{"GraniteMoeHybridForCausalLM"};
inline constexpr StateSpaceClasses<1> kZamba2Classes{"Zamba2ForCausalLM"};
inline constexpr StateSpaceClasses<1> kGeluOfZamba{"gelu"};
inline constexpr StateSpaceClasses<1> kFalconH1Classes{"FalconH1ForCausalLM"};
inline constexpr StateSpaceClasses<1> kNemotronHClasses{"NemotronHForCausalLM"};

void mamba_defaults(ModelConfig& config);
void falcon_mamba_defaults(ModelConfig& config);
void jamba_defaults(ModelConfig& config);
void mamba2_defaults(ModelConfig& config);
void bamba_defaults(ModelConfig& config);
void granite_hybrid_defaults(ModelConfig& config);
void falcon_h1_defaults(ModelConfig& config);
void nemotron_h_defaults(ModelConfig& config);
void zamba2_defaults(ModelConfig& config);

// Whether some of a family's layers are state spaces.
constexpr bool has_state_space(const ModelFamily& family) {
  return family.other_mixer == LayerMixer::kMamba || family.other_mixer == LayerMixer::kMamba2 ||
         family.other_mixer == LayerMixer::kMamba2Beside;
}

// Of such a family, after the numbers of a config.json: which layers are what, flags, multipliers.
// What is not supported is refused by its key's name.
Status read_state_space(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file; `widths`: of each layer's network, where the file has a list.
Status read_gguf_state_space(const GgufFile& file, const ConfigSource& source,
                             std::span<const int64_t> widths, ModelConfig& config);
// Of any family, after that: sizes that follow from others, and the relations between them.
Status finish_state_space(const ConfigSource& source, ModelConfig& config);

// Python writes infinities and NaN into its files, which are no JSON. The same text with null in
// their places.
std::string without_infinities(std::string_view text);

}  // namespace headrace
