// Of the table of architectures (model_family_table.cc) kin of older families with one part of
// their own: Apertus, Hunyuan, HyperCLOVA X, Phi-3.5-MoE, K-EXAONE.
#pragma once

#include <array>

#include "weights/model_family.h"

namespace headrace {

namespace kin_fields {
constexpr int32_t kExpertsMax = kModelLimits.experts_max;
constexpr ConfigField kEps{
    &ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
    Presence::kRequired};
constexpr ConfigField experts(std::string_view hf) {
  return {&ExpertConfig::count, "expert_count", hf, 0, kExpertsMax, Presence::kRequired};
}
constexpr ConfigField used(std::string_view hf) {
  return {&ExpertConfig::used, "expert_used_count", hf, 0, kExpertsMax};
}
constexpr ConfigField width(std::string_view hf) {
  return {&ExpertConfig::width, "expert_feed_forward_length", hf, 1, kModelLimits.ffn_max};
}
}  // namespace kin_fields

inline constexpr std::array kHunyuanMoeFields{
    kin_fields::kEps, kin_fields::experts("num_experts"), kin_fields::used("moe_topk"),
    kin_fields::width(""),
    ConfigField{&ExpertConfig::shared_width, "expert_shared_feed_forward_length", "", 1,
                kModelLimits.ffn_max}};
inline constexpr std::array kPhiMoeFields{
    kin_fields::kEps, kin_fields::experts("num_local_experts"),
    kin_fields::used("num_experts_per_tok"),
    ConfigField{&ExpertConfig::tolerance, "", "router_jitter_noise", 0, 1}};
inline constexpr std::array kExaoneMoeFields{
    kin_fields::kEps,
    kin_fields::experts("num_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    ConfigField{&ExpertConfig::shared_count, "", "num_shared_experts", 0, kin_fields::kExpertsMax,
                Presence::kNullable},
    ConfigField{&ExpertConfig::scale, "", "routed_scaling_factor", 0, 1e6},
    ConfigField{&ExpertConfig::groups, "", "n_group", 0, kin_fields::kExpertsMax},
    ConfigField{&ExpertConfig::groups_used, "", "topk_group", 0, kin_fields::kExpertsMax},
    ConfigField{&ExpertConfig::dense_first, "", "first_k_dense_replace", 0,
                kModelLimits.layers_max}};

using OneClass = std::array<std::string_view, 1>;
inline constexpr OneClass kApertusClasses{"ApertusForCausalLM"};
inline constexpr OneClass kXielu{"xielu"};
inline constexpr OneClass kHunyuanClasses{"HunYuanDenseV1ForCausalLM"};
inline constexpr OneClass kHunyuanMoeClasses{"HunYuanMoEV1ForCausalLM"};
inline constexpr OneClass kHyperClovaClasses{"HyperCLOVAXForCausalLM"};
inline constexpr OneClass kPhiMoeClasses{"PhimoeForCausalLM"};
inline constexpr OneClass kExaoneMoeClasses{"ExaoneMoeForCausalLM"};

void apertus_defaults(ModelConfig& config);
void hunyuan_defaults(ModelConfig& config);
void hunyuan_moe_defaults(ModelConfig& config);
void hyperclova_defaults(ModelConfig& config);
void phi_moe_defaults(ModelConfig& config);
void exaone_moe_defaults(ModelConfig& config);

}  // namespace headrace
