// Of the table of architectures (model_family_table.cc) those of latent attention and DeepSeek's
// router: DeepSeek V2 and V3, GLM-4.7-Flash; with an index DeepSeek V3.2 and GLM-5. Their numbers,
// what the classes assume, and the layers that have an index.
#pragma once

#include <algorithm>
#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kDeepSeekFields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
                Presence::kRequired},
    ConfigField{&ExpertConfig::count, "expert_count", "n_routed_experts", 0,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "expert_used_count", "num_experts_per_tok", 0,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::width, "expert_feed_forward_length", "moe_intermediate_size", 1,
                kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::shared_count, "expert_shared_count", "n_shared_experts", 0,
                kModelLimits.experts_max, Presence::kNullable},
    ConfigField{&ExpertConfig::scale, "expert_weights_scale", "routed_scaling_factor", 0, 1e6},
    ConfigField{&ExpertConfig::groups, "expert_group_count", "n_group", 0,
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
    ConfigField{&MixerConfig::drafting_layers, "", "num_nextn_predict_layers", 0,
                kModelLimits.layers_max, Presence::kNullable}};
inline constexpr std::array kKeyIndexFields{
    ConfigField{&LatentConfig::index_heads, "attention.indexer.head_count", "index_n_heads", 1,
                kModelLimits.heads_max},
    ConfigField{&LatentConfig::index_dim, "attention.indexer.key_length", "index_head_dim", 1,
                kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::index_top, "attention.indexer.top_k", "index_topk", 1,
                kModelLimits.index_top_max}};
inline constexpr auto kSparseFields = [] {
  std::array<ConfigField, kDeepSeekFields.size() + kKeyIndexFields.size()> fields;
  std::ranges::copy(kKeyIndexFields, std::ranges::copy(kDeepSeekFields, fields.begin()).out);
  return fields;
}();

inline constexpr std::array<std::string_view, 1> kDeepSeek2Classes{"DeepseekV2ForCausalLM"};
// Of Kimi K2.5, which also sees, the text half.
inline constexpr std::array<std::string_view, 3> kDeepSeek3Classes{
    "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"};
inline constexpr std::array<std::string_view, 1> kGlm4MoeLiteClasses{"Glm4MoeLiteForCausalLM"};
// Latent attention without experts; a GGUF file of them is a DeepSeek that has none.
inline constexpr std::array<std::string_view, 1> kYoutuClasses{"YoutuForCausalLM"};
inline constexpr std::array<std::string_view, 1> kAxK1Classes{"AXK1ForCausalLM"};
inline constexpr std::array<std::string_view, 1> kAxK2Classes{"AXK2ForCausalLM"};
inline constexpr auto kAxK2Fields = [] {
  std::array<ConfigField, kSparseFields.size() + 1> fields;
  *std::copy(kSparseFields.begin(), kSparseFields.end(), fields.begin()) = {
      &LatentConfig::norm_gate_rank, "", "gated_norm_rank", 1, kModelLimits.hidden_max};
  return fields;
}();
inline constexpr std::array<std::string_view, 1> kMistral4Classes{"Mistral4ForCausalLM"};
// DeepSeek V3, whose files call some numbers otherwise.
inline constexpr std::array<std::string_view, 1> kSarvamMlaClasses{"SarvamMLAForCausalLM"};
inline constexpr auto kSarvamMlaFields = [] {
  std::array<ConfigField, kDeepSeekFields.size() + 3> fields;
  auto next = std::copy(kDeepSeekFields.begin(), kDeepSeekFields.end(), fields.begin());
  *next++ = {&ExpertConfig::count, "", "num_experts", 0, kModelLimits.experts_max};
  *next++ = {&ExpertConfig::shared_count, "", "num_shared_experts", 0, kModelLimits.experts_max};
  *next++ = {&MixerConfig::drafting_layers, "", "num_mtp_layers", 0, kModelLimits.layers_max};
  return fields;
}();
inline constexpr std::array<std::string_view, 1> kLongCatClasses{"LongcatFlashForCausalLM"};
inline constexpr std::array kLongCatFields{
    ConfigField{&ModelConfig::rms_eps, "", "rms_norm_eps", 1e-20, 1, Presence::kRequired},
    ConfigField{&ModelConfig::layers, "", "num_layers", 1, kModelLimits.layers_max},
    ConfigField{&ModelConfig::ffn, "", "ffn_hidden_size", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::count, "", "n_routed_experts", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::identities, "", "zero_expert_num", 0, kModelLimits.experts_max,
                Presence::kNullable},
    ConfigField{&ExpertConfig::used, "", "moe_topk", 1, kModelLimits.experts_max},
    ConfigField{&ExpertConfig::width, "", "expert_ffn_hidden_size", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::scale, "", "routed_scaling_factor", 0, 1e6},
    ConfigField{&LatentConfig::rank, "", "kv_lora_rank", 1, kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::query_rank, "", "q_lora_rank", 1, kModelLimits.hidden_max},
    ConfigField{&LatentConfig::plain_dim, "", "qk_nope_head_dim", 1, kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::rope_dim, "", "qk_rope_head_dim", 2, kModelLimits.head_dim_max},
    ConfigField{&LatentConfig::value_dim, "", "v_head_dim", 1, kModelLimits.head_dim_max}};
inline constexpr std::array<std::string_view, 1> kHyV4Classes{"HYV4ForCausalLM"};
inline constexpr auto kHyV4Fields = [] {
  std::array<ConfigField, kSparseFields.size() + 4> fields;
  auto next = std::copy(kSparseFields.begin(), kSparseFields.end(), fields.begin());
  *next++ = {&GemmaConfig::streams, "", "hc_mult", 1, 16};
  *next++ = {&GemmaConfig::hyper_magnitude, "", "hc_magnitude", 1e-6, 1e6};
  *next++ = {&GemmaConfig::hyper_eps, "", "hc_eps", 0, 1};
  *next++ = {&ExpertConfig::gate_limit, "", "swiglu_limit", 1e-6, 1e6};
  return fields;
}();
inline constexpr std::array<std::string_view, 1> kDeepSeek32Classes{"DeepseekV32ForCausalLM"};
inline constexpr std::array<std::string_view, 1> kGlmDsaClasses{"GlmMoeDsaForCausalLM"};

void deepseek2_defaults(ModelConfig& config);
void deepseek3_defaults(ModelConfig& config);
void glm4_moe_lite_defaults(ModelConfig& config);
void youtu_defaults(ModelConfig& config);
void axk1_defaults(ModelConfig& config);
void axk2_defaults(ModelConfig& config);
void mistral4_defaults(ModelConfig& config);
void sarvam_mla_defaults(ModelConfig& config);
void longcat_defaults(ModelConfig& config);
void hy_v4_defaults(ModelConfig& config);
void deepseek32_defaults(ModelConfig& config);
void glm_dsa_defaults(ModelConfig& config);

// After the numbers of a config.json, before its lists of layers: what else LongCat-Flash says.
// Nothing of others.
Status read_longcat(const Json& json, const ConfigSource& source, ModelConfig& config);
// After the numbers of a config.json. Nothing where a model has no latents.
Status read_latent(const Json& json, const ConfigSource& source, ModelConfig& config);
// Of a GGUF file: the layers that have an index. Nothing of other architectures.
Status read_gguf_key_index(const GgufFile& file, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
