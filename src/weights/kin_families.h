// Of the table of architectures (model_family_table.cc) kin of older families with one part of
// their own: Apertus, Hunyuan, HyperCLOVA X, Phi-3.5-MoE, K-EXAONE, AFMoE, Mellum, Hunyuan V3,
// BitNet, Cohere 2 MoE, NanoChat, Granite with windows, MiniCPM3, OLMo-Hybrid.
#pragma once

#include <array>

#include "base/json.h"

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
constexpr ConfigField shared(std::string_view hf) {
  return {&ExpertConfig::shared_count, "expert_shared_count", hf, 0, kExpertsMax,
          Presence::kNullable};
}
constexpr ConfigField scale(std::string_view hf) {
  return {&ExpertConfig::scale, "expert_weights_scale", hf, 0, 1e6, Presence::kNullable};
}
constexpr ConfigField dense_first(std::string_view hf) {
  return {&ExpertConfig::dense_first, "leading_dense_block_count", hf, 0,
          kModelLimits.layers_max,    Presence::kNullable};
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

inline constexpr std::array kAfMoeFields{kin_fields::kEps,
                                         kin_fields::experts("num_experts"),
                                         kin_fields::used("num_experts_per_tok"),
                                         kin_fields::width("moe_intermediate_size"),
                                         kin_fields::shared("num_shared_experts"),
                                         kin_fields::scale("route_scale"),
                                         kin_fields::dense_first("num_dense_layers")};
inline constexpr std::array kMellumFields{
    kin_fields::kEps, kin_fields::experts("num_local_experts"),
    ConfigField{&ExpertConfig::count, "", "num_experts", 0, kin_fields::kExpertsMax},
    kin_fields::used("num_experts_per_tok"), kin_fields::width("moe_intermediate_size")};
inline constexpr std::array kHyV3Fields{
    kin_fields::kEps,
    kin_fields::experts("num_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    ConfigField{&ExpertConfig::shared_count, "", "num_shared_experts", 0, kin_fields::kExpertsMax,
                Presence::kNullable},
    ConfigField{&ExpertConfig::shared_width, "expert_shared_feed_forward_length", "", 1,
                kModelLimits.ffn_max},
    kin_fields::scale("router_scaling_factor"),
    kin_fields::dense_first("first_k_dense_replace"),
    ConfigField{&MixerConfig::drafting_layers, "nextn_predict_layers", "num_nextn_predict_layers",
                0, kModelLimits.layers_max, Presence::kNullable}};
inline constexpr std::array kCohere2MoeFields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_epsilon", "layer_norm_eps", 1e-20, 1},
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20,
                1},
    ConfigField{&ModelConfig::logit_divisor, "logit_scale", "logit_scale", 1e-9, 1e6},
    kin_fields::experts("num_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width(""),
    kin_fields::shared("num_shared_experts"),
    kin_fields::dense_first("first_k_dense_replace"),
    ConfigField{&MixerConfig::drafting_layers, "nextn_predict_layers", "num_nextn_predict_layers",
                0, kModelLimits.layers_max, Presence::kNullable}};
// GLM-4.5's numbers under other names.
inline constexpr std::array kSarvamMoeFields{
    kin_fields::kEps,
    ConfigField{&ExpertConfig::count, "", "n_routed_experts", 0, kin_fields::kExpertsMax},
    kin_fields::experts("num_experts"),
    kin_fields::used("num_experts_per_tok"),
    kin_fields::width("moe_intermediate_size"),
    kin_fields::shared("n_shared_experts"),
    ConfigField{&ExpertConfig::shared_count, "", "num_shared_experts", 0, kin_fields::kExpertsMax,
                Presence::kNullable},
    kin_fields::scale("routed_scaling_factor"),
    ConfigField{&ExpertConfig::groups, "", "n_group", 0, kin_fields::kExpertsMax,
                Presence::kNullable},
    ConfigField{&ExpertConfig::groups_used, "", "topk_group", 0, kin_fields::kExpertsMax,
                Presence::kNullable},
    kin_fields::dense_first("first_k_dense_replace"),
    ConfigField{&MixerConfig::drafting_layers, "", "num_nextn_predict_layers", 0,
                kModelLimits.layers_max, Presence::kNullable},
    ConfigField{&MixerConfig::drafting_layers, "", "num_mtp_layers", 0, kModelLimits.layers_max,
                Presence::kNullable}};
inline constexpr std::array kNanoChatFields{
    kin_fields::kEps, ConfigField{&ModelConfig::logit_soft_cap, "", "final_logit_softcapping", 0,
                                  1e6, Presence::kNullable}};
inline constexpr std::array kGraniteSwaFields{
    kin_fields::kEps,
    ConfigField{&ModelConfig::attention_scale, "", "attention_multiplier", 1e-9, 1e6},
    ConfigField{&ModelConfig::embedding_scale, "", "embedding_multiplier", 1e-9, 1e6},
    ConfigField{&ModelConfig::residual_scale, "", "residual_multiplier", 1e-9, 1e6},
    ConfigField{&ModelConfig::logit_divisor, "", "logits_scaling", 1e-9, 1e6}};
inline constexpr std::array kGraniteMoeSwaFields{
    kGraniteSwaFields[0],
    kGraniteSwaFields[1],
    kGraniteSwaFields[2],
    kGraniteSwaFields[3],
    kGraniteSwaFields[4],
    kin_fields::experts("num_local_experts"),
    kin_fields::used("num_experts_per_tok"),
    ConfigField{&ExpertConfig::shared_width, "", "shared_intermediate_size", 0,
                kModelLimits.ffn_max}};
inline constexpr std::array kOlmoHybridFields{
    kin_fields::kEps,
    ConfigField{&MixerConfig::conv_taps, "", "linear_conv_kernel_dim", 2,
                kModelLimits.conv_taps_max},
    ConfigField{&MixerConfig::key_heads, "", "linear_num_key_heads", 1, kModelLimits.heads_max},
    ConfigField{&MixerConfig::value_heads, "", "linear_num_value_heads", 1, kModelLimits.heads_max},
    ConfigField{&MixerConfig::key_dim, "", "linear_key_head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&MixerConfig::value_dim, "", "linear_value_head_dim", 1,
                kModelLimits.head_dim_max}};
// Its number of a residual is divided by the root of the number of layers, that of logits is what
// the hidden size is divided by.
inline constexpr std::array kMiniCpm3Fields{
    kin_fields::kEps,
    ConfigField{&LatentConfig::rank, "attention.kv_lora_rank", "kv_lora_rank", 1,
                kModelLimits.head_dim_max, Presence::kRequired},
    ConfigField{&LatentConfig::query_rank, "attention.q_lora_rank", "q_lora_rank", 0,
                kModelLimits.hidden_max, Presence::kNullable},
    ConfigField{&LatentConfig::plain_dim, "", "qk_nope_head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::rope_dim, "rope.dimension_count", "qk_rope_head_dim", 2,
                kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::value_dim, "", "v_head_dim", 1, kModelLimits.head_dim_max,
                Presence::kNullable},
    ConfigField{&ModelConfig::embedding_scale, "", "scale_emb", 1e-9, 1e6},
    ConfigField{&ModelConfig::residual_scale, "", "scale_depth", 1e-9, 1e6, Presence::kNullable},
    ConfigField{&ModelConfig::logit_divisor, "", "dim_model_base", 1, 1e9, Presence::kNullable}};

// Apertus 1.5, whose embedding has rows of images and sound, too.
inline constexpr std::array kApertus15Fields{
    kin_fields::kEps, ConfigField{&OutputHead::tokens, "", "output_vocab_size", 1,
                                  kModelLimits.vocab_max, Presence::kNullable}};

using OneClass = std::array<std::string_view, 1>;
inline constexpr OneClass kApertusClasses{"ApertusForCausalLM"};
inline constexpr std::array<std::string_view, 2> kApertus15Classes{
    "Apertus1p5TextForCausalLM", "Apertus1p5ForConditionalGeneration"};
inline constexpr OneClass kXielu{"xielu"};
inline constexpr OneClass kHunyuanClasses{"HunYuanDenseV1ForCausalLM"};
inline constexpr OneClass kHunyuanMoeClasses{"HunYuanMoEV1ForCausalLM"};
inline constexpr OneClass kHyperClovaClasses{"HyperCLOVAXForCausalLM"};
inline constexpr OneClass kPhiMoeClasses{"PhimoeForCausalLM"};
inline constexpr OneClass kExaoneMoeClasses{"ExaoneMoeForCausalLM"};

inline constexpr OneClass kSarvamMoeClasses{"SarvamMoEForCausalLM"};
// Llama under other names of a class.
inline constexpr OneClass kInternLm3Classes{"InternLM3ForCausalLM"};
inline constexpr OneClass kIQuestCoderClasses{"IQuestCoderForCausalLM"};
inline constexpr OneClass kBitNetClasses{"BitNetForCausalLM"};
inline constexpr std::array kBitNetFields{kin_fields::kEps};
inline constexpr OneClass kAfMoeClasses{"AfmoeForCausalLM"};
inline constexpr OneClass kMellumClasses{"MellumForCausalLM"};
inline constexpr OneClass kHyV3Classes{"HYV3ForCausalLM"};
inline constexpr OneClass kCohere2MoeClasses{"Cohere2MoeForCausalLM"};
inline constexpr OneClass kNanoChatClasses{"NanoChatForCausalLM"};
inline constexpr OneClass kGraniteSwaClasses{"GraniteSWAForCausalLM"};
inline constexpr OneClass kGraniteMoeSwaClasses{"GraniteMoeSWAForCausalLM"};
inline constexpr OneClass kOlmoHybridClasses{"OlmoHybridForCausalLM"};
inline constexpr OneClass kMiniCpm3Classes{"MiniCPM3ForCausalLM"};

void apertus_defaults(ModelConfig& config);
void apertus15_defaults(ModelConfig& config);
void hunyuan_defaults(ModelConfig& config);
void hunyuan_moe_defaults(ModelConfig& config);
void hyperclova_defaults(ModelConfig& config);
void phi_moe_defaults(ModelConfig& config);
void exaone_moe_defaults(ModelConfig& config);
void bitnet_defaults(ModelConfig& config);
void afmoe_defaults(ModelConfig& config);
void mellum_defaults(ModelConfig& config);
void hy_v3_defaults(ModelConfig& config);
void cohere2_moe_defaults(ModelConfig& config);
void nanochat_defaults(ModelConfig& config);
void granite_swa_defaults(ModelConfig& config);
void granite_moe_swa_defaults(ModelConfig& config);
void minicpm3_defaults(ModelConfig& config);
void olmo_hybrid_defaults(ModelConfig& config);
void sarvam_moe_defaults(ModelConfig& config);
void internlm3_defaults(ModelConfig& config);
void iquest_coder_defaults(ModelConfig& config);

// After the numbers of a config.json: what else these families say. Nothing of others.
Status read_kin(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file: what llama.cpp takes for granted.
void read_gguf_kin(const GgufFile& file, ModelConfig& config);

}  // namespace headrace
