// Of the table of architectures (model_family_table.cc) families whose layers that slide have other
// heads or rotations than the others: MiMo V2 Flash, Laguna, Step 3.5, LFM3, Flint, Kolibri.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/kin_families.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kMiMo2Fields{
    kin_fields::kEps,
    kin_fields::experts("n_routed_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    kin_fields::scale("routed_scaling_factor"),
    ConfigField{&ExpertConfig::groups, "expert_group_count", "n_group", 0, kin_fields::kExpertsMax},
    ConfigField{&ExpertConfig::groups_used, "expert_group_used_count", "topk_group", 0,
                kin_fields::kExpertsMax},
    ConfigField{&HeadSizes::value_dim, "attention.value_length", "v_head_dim", 1,
                kModelLimits.head_dim_max},
    ConfigField{&HeadSizes::value_scale, "attention.value_scale", "attention_value_scale", 1e-6,
                1e6, Presence::kNullable},
    ConfigField{&ModelConfig::rope_theta_local, "", "swa_rope_theta", 1, 1e12},
    ConfigField{&MixerConfig::drafting_layers, "nextn_predict_layers", "", 0,
                kModelLimits.layers_max}};
inline constexpr std::array kLagunaFields{
    kin_fields::kEps,
    kin_fields::experts("num_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    ConfigField{&ExpertConfig::shared_width, "expert_shared_feed_forward_length",
                "shared_expert_intermediate_size", 1, kModelLimits.ffn_max},
    kin_fields::scale("moe_routed_scaling_factor"),
    kin_fields::dense_first(""),
    ConfigField{&HeadSizes::sliding_rope_dim, "rope.dimension_count_swa", "", 2,
                kModelLimits.head_dim_max}};
// Under the library's names and the hub's.
inline constexpr std::array kStepFields{
    kin_fields::kEps,
    ConfigField{&ExpertConfig::count, "", "moe_num_experts", 0, kin_fields::kExpertsMax},
    kin_fields::experts("n_routed_experts"),
    ConfigField{&ExpertConfig::used, "", "moe_top_k", 0, kin_fields::kExpertsMax},
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    ConfigField{&ExpertConfig::shared_width, "", "share_expert_dims", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::shared_width, "expert_shared_feed_forward_length",
                "share_expert_dim", 1, kModelLimits.ffn_max},
    ConfigField{&HeadSizes::sliding_rope_dim, "rope.dimension_count_swa", "", 2,
                kModelLimits.head_dim_max},
    kin_fields::scale("moe_router_scaling_factor"),
    ConfigField{&ModelConfig::kv_heads, "", "num_attention_groups", 1, kModelLimits.heads_max},
    ConfigField{&ModelConfig::context_length, "", "max_seq_len", 1,
                kModelLimits.context_length_max},
    ConfigField{&MixerConfig::drafting_layers, "", "num_mtp_layers", 0, kModelLimits.layers_max},
    ConfigField{&MixerConfig::drafting_layers, "nextn_predict_layers", "num_nextn_predict_layers",
                0, kModelLimits.layers_max}};

inline constexpr std::array kLfm3Fields{
    ConfigField{&ModelConfig::rms_eps, "", "norm_eps", 1e-20, 1, Presence::kRequired},
    ConfigField{&MixerConfig::conv_taps, "", "conv_L_cache", 2, kModelLimits.conv_taps_max,
                Presence::kRequired}};
inline constexpr std::array kFlintFields{
    kin_fields::kEps,
    kin_fields::experts("num_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    ConfigField{&ExpertConfig::count, "", "num_local_experts", 0, kin_fields::kExpertsMax},
    ConfigField{&ExpertConfig::shared_width, "", "shared_expert_intermediate_size", 1,
                kModelLimits.ffn_max}};

inline constexpr OneClass kKolibriClasses{"Kolibri1ForCausalLM"};
inline constexpr OneClass kLfm3Classes{"Lfm3ForCausalLM"};
inline constexpr OneClass kFlintClasses{"FlintForCausalLM"};
inline constexpr OneClass kMiMo2Classes{"MiMoV2FlashForCausalLM"};
inline constexpr OneClass kLagunaClasses{"LagunaForCausalLM"};
// Of the second the text half.
inline constexpr std::array<std::string_view, 2> kStepClasses{"Step3p5ForCausalLM",
                                                              "Step3p7ForConditionalGeneration"};

void mimo2_defaults(ModelConfig& config);
void laguna_defaults(ModelConfig& config);
void step_defaults(ModelConfig& config);
void lfm3_defaults(ModelConfig& config);
void flint_defaults(ModelConfig& config);
void kolibri_defaults(ModelConfig& config);

// After the numbers of a config.json: what else these families say. Nothing of others.
Status read_windowed(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file.
Status read_gguf_windowed(const GgufFile& file, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
