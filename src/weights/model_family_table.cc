// The table of architectures: their numbers, what their classes assume, their rows.
#include "weights/model_family.h"

#include <algorithm>
#include <array>

#include "weights/dbrx_family.h"
#include "weights/deepseek4_family.h"
#include "weights/gemma_families.h"
#include "weights/glm_families.h"
#include "weights/gpt_families.h"
#include "weights/inkling_family.h"
#include "weights/kimi_linear_family.h"
#include "weights/kin_families.h"
#include "weights/latent_families.h"
#include "weights/llama4_family.h"
#include "weights/mamba_families.h"
#include "weights/minimax_family.h"
#include "weights/qwen35_families.h"
#include "weights/recurrent_gemma_family.h"
#include "weights/rwkv_family.h"
#include "weights/window_families.h"

namespace headrace {
namespace {

constexpr double kThetaMax = 1e12;
constexpr double kScaleMax = 1e6;
using enum Presence;

constexpr auto kCommonFields = std::to_array<ConfigField>({
    {&ModelConfig::hidden, "embedding_length", "hidden_size", 1, kModelLimits.hidden_max,
     kRequired},
    {&ModelConfig::layers, "block_count", "num_hidden_layers", 1, kModelLimits.layers_max,
     kRequired},
    {&ModelConfig::ffn, "feed_forward_length", "intermediate_size", 0, kModelLimits.ffn_max,
     kRequired},
    {&ModelConfig::vocab, "", "vocab_size", 1, kModelLimits.vocab_max, kRequired},
    {&ModelConfig::context_length, "context_length", "max_position_embeddings", 1,
     kModelLimits.context_length_max, kRequired},
    {&ModelConfig::heads, "attention.head_count", "num_attention_heads", 0, kModelLimits.heads_max,
     kRequired},
    {&ModelConfig::kv_heads, "attention.head_count_kv", "num_key_value_heads", 1,
     kModelLimits.heads_max, kNullable},
    {&ModelConfig::head_dim, "attention.key_length", "head_dim", 1, kModelLimits.head_dim_max,
     kNullable},
    {&ModelConfig::rope_dim, "rope.dimension_count", "", 1, kModelLimits.head_dim_max},
    {&ModelConfig::rope_theta, "rope.freq_base", "rope_theta", 1, kThetaMax},
    {&ModelConfig::rope_theta_local, "rope.freq_base_swa", "rope_local_base_freq", 1, kThetaMax},
    {&ModelConfig::window, "attention.sliding_window", "sliding_window", 0,
     kModelLimits.context_length_max, kNullable},
});

constexpr ConfigField kRmsEps{
    &ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1, kRequired};
constexpr ConfigField layer_norm_eps(std::string_view hf) {
  return {&ModelConfig::rms_eps, "attention.layer_norm_epsilon", hf, 1e-20, 1, kRequired};
}
constexpr auto kRmsFields = std::to_array<ConfigField>({kRmsEps});

// Of mixtures of experts. Files spell the number of experts in three ways.
constexpr ConfigField expert_count(std::string_view hf, Presence presence = kRequired) {
  return {&ExpertConfig::count, "expert_count", hf, 0, kModelLimits.experts_max, presence};
}
constexpr ConfigField kNumExperts{&ExpertConfig::count, "", "num_experts", 0,
                                  kModelLimits.experts_max};
constexpr ConfigField experts_used(std::string_view hf) {
  return {&ExpertConfig::used, "expert_used_count", hf, 0, kModelLimits.experts_max};
}
constexpr ConfigField kExpertWidth{&ExpertConfig::width, "expert_feed_forward_length",
                                   "moe_intermediate_size", 1, kModelLimits.ffn_max};
// A GGUF file of Llama's name may be a Mixtral.
constexpr auto kLlamaFields =
    std::to_array<ConfigField>({kRmsEps, expert_count("", kOptional), experts_used("")});
constexpr auto kMixtralFields = std::to_array<ConfigField>(
    {kRmsEps, expert_count("num_local_experts"), experts_used("num_experts_per_tok")});
constexpr auto kOlmoeFields = std::to_array<ConfigField>({
    kRmsEps,
    kNumExperts,
    expert_count("num_local_experts"),
    experts_used("num_experts_per_tok"),
});
constexpr auto kQwen3MoeFields = std::to_array<ConfigField>({
    kRmsEps,
    kNumExperts,
    expert_count("num_local_experts"),
    experts_used("num_experts_per_tok"),
    kExpertWidth,
});
// DeepSeek's router (Liu et al., 2024).
constexpr auto kDots1Fields = std::to_array<ConfigField>({
    kRmsEps,
    expert_count("n_routed_experts"),
    experts_used("num_experts_per_tok"),
    kExpertWidth,
    {&ExpertConfig::shared_count, "expert_shared_count", "n_shared_experts", 0,
     kModelLimits.experts_max, kNullable},
    {&ExpertConfig::scale, "expert_weights_scale", "routed_scaling_factor", 0, kScaleMax},
    {&ExpertConfig::groups, "expert_group_count", "n_group", 0, kModelLimits.experts_max},
    {&ExpertConfig::groups_used, "expert_group_used_count", "topk_group", 0,
     kModelLimits.experts_max},
    {&ExpertConfig::dense_first, "leading_dense_block_count", "first_k_dense_replace", 0,
     kModelLimits.layers_max},
});
constexpr ConfigField kSharedExpertWidth{
    &ExpertConfig::shared_width, "expert_shared_feed_forward_length",
    "shared_expert_intermediate_size", 1, kModelLimits.ffn_max};
constexpr auto kQwen2MoeFields = std::to_array<ConfigField>({
    kRmsEps,
    kNumExperts,
    expert_count("num_local_experts"),
    experts_used("num_experts_per_tok"),
    kExpertWidth,
    kSharedExpertWidth,
});
constexpr auto kLfm2Fields = std::to_array<ConfigField>({
    {&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "norm_eps", 1e-20, 1, kRequired},
    {&MixerConfig::conv_taps, "shortconv.l_cache", "conv_L_cache", 2, kModelLimits.conv_taps_max,
     kRequired},
});
constexpr auto kLfm2MoeFields = [] {
  std::array<ConfigField, kLfm2Fields.size() + 5> fields;
  auto next = std::copy(kLfm2Fields.begin(), kLfm2Fields.end(), fields.begin());
  *next++ = expert_count("num_experts");
  *next++ = experts_used("num_experts_per_tok");
  *next++ = kExpertWidth;
  *next++ = {&ExpertConfig::scale, "expert_weights_scale", "routed_scaling_factor", 0, kScaleMax};
  *next++ = {&ExpertConfig::dense_first, "leading_dense_block_count", "num_dense_layers", 0,
             kModelLimits.layers_max};
  return fields;
}();
// GGUF files have the width of all values in the place of that of a head (qwen35_families.h).
constexpr auto kQwen35Fields = std::to_array<ConfigField>({
    kRmsEps,
    {&MixerConfig::conv_taps, "ssm.conv_kernel", "linear_conv_kernel_dim", 2,
     kModelLimits.conv_taps_max, kRequired},
    {&MixerConfig::key_heads, "ssm.group_count", "linear_num_key_heads", 1, kModelLimits.heads_max,
     kRequired},
    {&MixerConfig::value_heads, "ssm.time_step_rank", "linear_num_value_heads", 1,
     kModelLimits.heads_max, kRequired},
    {&MixerConfig::key_dim, "ssm.state_size", "linear_key_head_dim", 1, kModelLimits.head_dim_max,
     kRequired},
    {&MixerConfig::value_dim, "", "linear_value_head_dim", 1, kModelLimits.head_dim_max},
    {&MixerConfig::drafting_layers, "nextn_predict_layers", "", 0, kModelLimits.layers_max},
});
constexpr auto kQwen35MoeFields = [] {
  std::array<ConfigField, kQwen35Fields.size() + 4> fields;
  auto next = std::copy(kQwen35Fields.begin(), kQwen35Fields.end(), fields.begin());
  *next++ = expert_count("num_experts");
  *next++ = experts_used("num_experts_per_tok");
  *next++ = kExpertWidth;
  *next++ = kSharedExpertWidth;
  return fields;
}();
constexpr auto kErnieMoeFields = std::to_array<ConfigField>({
    kRmsEps,
    expert_count("moe_num_experts"),
    experts_used("moe_k"),
    kExpertWidth,
    {&ExpertConfig::shared_count, "expert_shared_count", "moe_num_shared_experts", 0,
     kModelLimits.experts_max, kNullable},
    {&ExpertConfig::dense_first, "leading_dense_block_count", "moe_layer_start_index", 0,
     kModelLimits.layers_max},
});
// GLM-4.5: DeepSeek's router, and layers that draft.
constexpr auto kGlm4MoeFields = [] {
  std::array<ConfigField, kDots1Fields.size() + 1> fields;
  std::copy(kDots1Fields.begin(), kDots1Fields.end(), fields.begin());
  fields.back() = {&MixerConfig::drafting_layers, "nextn_predict_layers",
                   "num_nextn_predict_layers",    0,
                   kModelLimits.layers_max,       kNullable};
  return fields;
}();
constexpr auto kMiniMaxM2Fields = std::to_array<ConfigField>({
    kRmsEps,
    expert_count("num_local_experts"),
    experts_used("num_experts_per_tok"),
    {&ExpertConfig::width, "expert_feed_forward_length", "", 1, kModelLimits.ffn_max},
});
constexpr auto kStarCoder2Fields = std::to_array<ConfigField>({layer_norm_eps("norm_epsilon")});
constexpr auto kNemotronFields = std::to_array<ConfigField>({layer_norm_eps("norm_eps")});
constexpr auto kLayerNormFields = std::to_array<ConfigField>({layer_norm_eps("layer_norm_eps")});
constexpr auto kCohereFields = std::to_array<ConfigField>({
    layer_norm_eps("layer_norm_eps"),
    {&ModelConfig::logit_divisor, "logit_scale", "logit_scale", 1e-9, kScaleMax},
});
constexpr auto kOlmoFields = std::to_array<ConfigField>({layer_norm_eps("")});
constexpr ConfigField kLogitCap = {&ModelConfig::logit_soft_cap,
                                   "final_logit_softcapping",
                                   "final_logit_softcapping",
                                   0,
                                   kScaleMax,
                                   kNullable};
constexpr auto kGemma3Fields = std::to_array<ConfigField>({kRmsEps, kLogitCap});
constexpr auto kSoftCapFields =
    std::to_array<ConfigField>({kRmsEps,
                                kLogitCap,
                                {&ModelConfig::attention_soft_cap, "attn_logit_softcapping",
                                 "attn_logit_softcapping", 0, kScaleMax, kNullable}});
constexpr auto kGraniteFields = std::to_array<ConfigField>({
    kRmsEps,
    {&ModelConfig::attention_scale, "attention.scale", "attention_multiplier", 1e-9, kScaleMax},
    {&ModelConfig::embedding_scale, "embedding_scale", "embedding_multiplier", 1e-9, kScaleMax},
    {&ModelConfig::residual_scale, "residual_scale", "residual_multiplier", 1e-9, kScaleMax},
    {&ModelConfig::logit_divisor, "logit_scale", "logits_scaling", 1e-9, kScaleMax},
});
constexpr auto kGraniteMoeFields = [] {
  std::array<ConfigField, kGraniteFields.size() + 3> fields;
  auto next = std::copy(kGraniteFields.begin(), kGraniteFields.end(), fields.begin());
  *next++ = expert_count("num_local_experts");
  *next++ = experts_used("num_experts_per_tok");
  *next++ = {&ExpertConfig::shared_width, "expert_shared_feed_forward_length",
             "shared_intermediate_size", 0, kModelLimits.ffn_max};
  return fields;
}();

// ---- what the Hugging Face classes assume

void set_defaults(ModelConfig& config, double theta, int32_t context_length, float eps) {
  config.rope_theta = theta;
  config.context_length = context_length;
  config.rms_eps = eps;
}
void llama_defaults(ModelConfig& config) { set_defaults(config, 1e4, 2048, 1e-6f); }
void mistral_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 131072, 1e-6f);
  config.kv_heads = 8;
  config.window = 4096;
}
void qwen2_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 32768, 1e-6f);
  config.qkv_bias = true;
  config.window = 4096;
}
void qwen3_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 32768, 1e-6f);
  config.head_dim = 128;
  config.window = 4096;
}
// Of the text halves of models that see.
void qwen2_vl_defaults(ModelConfig& config) {
  qwen2_defaults(config);
  config.rope_theta = 1e6;
}
void qwen3_vl_defaults(ModelConfig& config) {
  qwen3_defaults(config);
  config.rope_theta = 5e5;
  config.context_length = 128000;
  config.window = 0;
}
void gemma_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 8192, 1e-6f);
  config.head_dim = 256;
  config.tied_embeddings = true;
}
void gemma2_defaults(ModelConfig& config) {
  gemma_defaults(config);
  config.window = 4096;
  config.attention_scale = 1.0f / 16;  // query_pre_attn_scalar 256
  config.attention_soft_cap = 50;
  config.logit_soft_cap = 30;
}
void gemma3_defaults(ModelConfig& config) {
  gemma_defaults(config);
  set_defaults(config, 1e6, 131072, 1e-6f);
  config.rope_theta_local = 1e4;
  config.window = 4096;
  config.attention_scale = 1.0f / 16;
  config.vocab = 262208;
  config.hidden = 2304;
  config.ffn = 9216;
  config.layers = 26;
  config.heads = 8;
  config.kv_heads = 4;
}
void phi3_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 4096, 1e-5f);
  config.rope_scaling.original_context = 4096;
  config.fused.qkv = true;
  config.fused.gate_up = true;
}
void smollm3_defaults(ModelConfig& config) {
  set_defaults(config, 2e6, 32768, 1e-6f);
  config.kv_heads = 4;
  config.tied_embeddings = true;
}
void mixtral_defaults(ModelConfig& config) {
  set_defaults(config, 1e6, 131072, 1e-5f);
  config.kv_heads = 8;
  config.experts = {.count = 8, .used = 2};
}
void qwen2_moe_defaults(ModelConfig& config) {
  qwen2_defaults(config);
  config.experts = {
      .count = 60, .used = 4, .width = 1408, .shared_width = 5632, .normalised = false};
}
void qwen3_moe_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 32768, 1e-6f);
  config.window = 4096;
  config.experts = {.count = 128, .used = 8, .width = 768, .normalised = false};
}
void qwen3_vl_moe_defaults(ModelConfig& config) {
  set_defaults(config, 5e5, 128000, 1e-6f);
  config.kv_heads = 16;
  config.experts = {.count = 60, .used = 4, .width = 1408};
}
void dots1_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 2048, 1e-6f);
  config.experts = {.width = 1408, .normalised = false};
}
void olmoe_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 4096, 1e-5f);
  config.experts = {.count = 64, .used = 8, .normalised = false};
}
void olmo2_defaults(ModelConfig& config) { set_defaults(config, 1e4, 2048, 1e-5f); }
void olmo3_defaults(ModelConfig& config) {
  set_defaults(config, 5e5, 2048, 1e-5f);
  config.window = 4096;
}
void granite_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 2048, 1e-6f);
  config.attention_scale = 1;
  config.embedding_scale = 1;
}
void granite_moe_defaults(ModelConfig& config) {
  granite_defaults(config);
  config.experts = {.count = 8, .used = 2};
}
void lfm2_defaults(ModelConfig& config) {
  set_defaults(config, 1e6, 128000, 1e-5f);
  config.kv_heads = 8;
  config.mixers.conv_taps = 3;
  config.tied_embeddings = true;
}
void lfm2_moe_defaults(ModelConfig& config) {
  lfm2_defaults(config);
  config.experts = {.count = 32, .used = 4, .width = 1792, .normalised = true, .dense_first = 2};
}
void seed_oss_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 524288, 1e-6f);
  config.kv_heads = 8;
  config.head_dim = 128;
  config.qkv_bias = true;
}
void exaone4_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 2048, 1e-5f);
  config.window = 4096;
}
void ernie4_5_defaults(ModelConfig& config) {
  set_defaults(config, 5e5, 131072, 1e-5f);
  config.kv_heads = 2;
  config.tied_embeddings = true;
  config.qk_rows_interleaved = true;
}
void ernie4_5_moe_defaults(ModelConfig& config) {
  ernie4_5_defaults(config);
  config.kv_heads = 4;
  config.experts = {.count = 64,
                    .used = 6,
                    .width = 1536,
                    .shared_count = 2,
                    .normalised = true,
                    .dense_first = 1};
}
void helium_defaults(ModelConfig& config) {
  set_defaults(config, 1e5, 4096, 1e-8f);
  config.head_dim = 128;
  config.qk_rows_interleaved = true;
}
void minimax_m2_defaults(ModelConfig& config) {
  set_defaults(config, 5e6, 196608, 1e-6f);
  config.kv_heads = 8;
  config.head_dim = 128;
  config.experts = {.count = 256, .used = 8, .normalised = true};
}
void flex_olmo_defaults(ModelConfig& config) {
  set_defaults(config, 5e5, 4096, 1e-6f);
  config.experts = {.count = 7, .used = 5, .normalised = false};
}
void cwm_defaults(ModelConfig& config) {
  set_defaults(config, 1e6, 131072, 1e-5f);
  config.kv_heads = 8;
  config.head_dim = 128;
  config.window = 8192;
}
void gpt_oss_defaults(ModelConfig& config) {
  set_defaults(config, 1.5e5, 131072, 1e-5f);
  config.kv_heads = 8;
  config.head_dim = 64;
  config.window = 128;
  config.qkv_bias = config.attention_out_bias = true;
  config.experts = {.count = 128, .used = 4, .normalised = true};
}
void cohere_defaults(ModelConfig& config) {
  set_defaults(config, 5e5, 8192, 1e-5f);
  config.logit_divisor = 0.0625f;
  config.tied_embeddings = true;
  config.qk_rows_interleaved = true;
  config.mixers.head_norms = false;
}
void cohere2_defaults(ModelConfig& config) {
  cohere_defaults(config);
  config.rope_theta = 1e4;
  config.window = 4096;
}
void phi_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 2048, 1e-5f);
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = true;
  config.mixers.rotated = 0.5;
}
void gpt_neox_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 2048, 1e-5f);
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = true;
  config.fused = {.qkv = true, .qkv_by_head = true};
  config.mixers.parallel = true;
  config.mixers.rotated = 0.25;
}
void arcee_defaults(ModelConfig& config) { set_defaults(config, 1e4, 4096, 1e-5f); }
void nemotron_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 4096, 1e-5f);
  config.mixers.rotated = 0.5;
}
void jais2_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 8192, 1e-5f);
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = true;
}
void stablelm_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 4096, 1e-5f);
  config.mixers.rotated = 0.25;
}
void olmo_defaults(ModelConfig& config) { set_defaults(config, 1e4, 2048, 1e-5f); }
void starcoder2_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 4096, 1e-5f);
  config.kv_heads = 2;
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = true;
  config.tied_embeddings = true;
}

template <size_t kCount>
using NameArray = std::array<std::string_view, kCount>;

constexpr NameArray<1> kLlamaClasses{"LlamaForCausalLM"};
constexpr NameArray<2> kMistralClasses{"MistralForCausalLM", "MinistralForCausalLM"};
constexpr NameArray<1> kMixtralClasses{"MixtralForCausalLM"};
constexpr NameArray<1> kQwen2MoeClasses{"Qwen2MoeForCausalLM"};
constexpr NameArray<1> kQwen3MoeClasses{"Qwen3MoeForCausalLM"};
constexpr NameArray<1> kQwen3VlMoeClasses{"Qwen3VLMoeForConditionalGeneration"};
constexpr NameArray<1> kDots1Classes{"Dots1ForCausalLM"};
constexpr NameArray<1> kOlmoeClasses{"OlmoeForCausalLM"};
constexpr NameArray<2> kGraniteMoeClasses{"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"};
// Of models that also see their text half.
constexpr NameArray<1> kQwen2Classes{"Qwen2ForCausalLM"};
constexpr NameArray<2> kQwen2VlClasses{"Qwen2VLForConditionalGeneration",
                                       "Qwen2_5_VLForConditionalGeneration"};
constexpr NameArray<1> kQwen3Classes{"Qwen3ForCausalLM"};
constexpr NameArray<1> kQwen3VlClasses{"Qwen3VLForConditionalGeneration"};
constexpr NameArray<1> kGemmaClasses{"GemmaForCausalLM"};
constexpr NameArray<1> kGemma2Classes{"Gemma2ForCausalLM"};
constexpr NameArray<2> kGemma3Classes{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};
constexpr NameArray<1> kPhi3Classes{"Phi3ForCausalLM"};
constexpr NameArray<1> kSmolLm3Classes{"SmolLM3ForCausalLM"};
constexpr NameArray<1> kOlmo2Classes{"Olmo2ForCausalLM"};
constexpr NameArray<1> kOlmo3Classes{"Olmo3ForCausalLM"};
constexpr NameArray<1> kGraniteClasses{"GraniteForCausalLM"};
constexpr NameArray<1> kLfm2Classes{"Lfm2ForCausalLM"};
constexpr NameArray<1> kLfm2MoeClasses{"Lfm2MoeForCausalLM"};
constexpr NameArray<2> kQwen35Classes{"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"};
constexpr NameArray<2> kQwen35MoeClasses{"Qwen3_5MoeForCausalLM",
                                         "Qwen3_5MoeForConditionalGeneration"};
constexpr NameArray<1> kQwen3NextClasses{"Qwen3NextForCausalLM"};
constexpr NameArray<1> kStarCoder2Classes{"Starcoder2ForCausalLM"};
constexpr NameArray<1> kSeedOssClasses{"SeedOssForCausalLM"};
constexpr NameArray<1> kExaone4Classes{"Exaone4ForCausalLM"};
constexpr NameArray<1> kErnieClasses{"Ernie4_5ForCausalLM"};
constexpr NameArray<1> kErnieMoeClasses{"Ernie4_5_MoeForCausalLM"};
constexpr NameArray<1> kHeliumClasses{"HeliumForCausalLM"};
constexpr NameArray<1> kMiniMaxM2Classes{"MiniMaxM2ForCausalLM"};
constexpr NameArray<1> kFlexOlmoClasses{"FlexOlmoForCausalLM"};
constexpr NameArray<1> kCwmClasses{"CwmForCausalLM"};
constexpr NameArray<1> kVaultGemmaClasses{"VaultGemmaForCausalLM"};
constexpr NameArray<1> kGptOssClasses{"GptOssForCausalLM"};
constexpr NameArray<1> kCohereClasses{"CohereForCausalLM"};
constexpr NameArray<1> kCohere2Classes{"Cohere2ForCausalLM"};
constexpr NameArray<1> kPhiClasses{"PhiForCausalLM"};
constexpr NameArray<1> kGptNeoxClasses{"GPTNeoXForCausalLM"};
constexpr NameArray<1> kRelu{"relu"};
constexpr NameArray<2> kGeluTanhOfPhi{"gelu_new", "gelu_pytorch_tanh"};
constexpr NameArray<1> kGeluErf{"gelu"};
constexpr NameArray<1> kArceeClasses{"ArceeForCausalLM"};
constexpr NameArray<1> kNemotronClasses{"NemotronForCausalLM"};
constexpr NameArray<1> kJais2Classes{"Jais2ForCausalLM"};
constexpr NameArray<1> kStableLmClasses{"StableLmForCausalLM"};
constexpr NameArray<1> kOlmoClasses{"OlmoForCausalLM"};
constexpr NameArray<1> kReluSquared{"relu2"};
constexpr NameArray<1> kSilu{"silu"};
// Gemma's first files say "gelu" and mean the tanh form.
constexpr NameArray<3> kGemmaGelu{"gelu_pytorch_tanh", "gelu", "gelu_new"};
constexpr NameArray<1> kGeluTanh{"gelu_pytorch_tanh"};

constexpr bool kInterleaved = true;
constexpr bool kActivationsFitF16 = true;

// A GGUF file names the architecture only: the first row of a name is for them.
constexpr auto kFamilies = std::to_array<ModelFamily>({
    {"llama", kLlamaClasses, kSilu, kInterleaved, kLlamaFields, llama_defaults, kActivationsFitF16},
    {"llama", kMistralClasses, kSilu, kInterleaved, kRmsFields, mistral_defaults,
     kActivationsFitF16},
    {"llama", kMixtralClasses, kSilu, kInterleaved, kMixtralFields, mixtral_defaults},
    {"llama", kInternLm3Classes, kSilu, kInterleaved, kRmsFields, internlm3_defaults},
    {"llama", kIQuestCoderClasses, kSilu, kInterleaved, kRmsFields, iquest_coder_defaults},
    {"llama4", kLlama4Classes, kSilu, kInterleaved, kLlama4Fields, llama4_defaults},
    {"mistral3", kMinistral3Classes, kSilu, kInterleaved, kMinistral3Fields, ministral3_defaults},
    {"qwen2", kQwen2Classes, kSilu, !kInterleaved, kRmsFields, qwen2_defaults, kActivationsFitF16},
    {"qwen3", kQwen3Classes, kSilu, !kInterleaved, kRmsFields, qwen3_defaults},
    {"qwen2", kQwen2VlClasses, kSilu, !kInterleaved, kRmsFields, qwen2_vl_defaults,
     kActivationsFitF16},
    {"qwen3", kQwen3VlClasses, kSilu, !kInterleaved, kRmsFields, qwen3_vl_defaults},
    {"gemma", kGemmaClasses, kGemmaGelu, !kInterleaved, kRmsFields, gemma_defaults},
    {"gemma2", kGemma2Classes, kGemmaGelu, !kInterleaved, kSoftCapFields, gemma2_defaults},
    {"gemma3", kGemma3Classes, kGemmaGelu, !kInterleaved, kGemma3Fields, gemma3_defaults},
    {"gemma3n", kGemma3nClasses, kGemmaTanhGelu, !kInterleaved, kGemma3nFields, gemma3n_defaults},
    {"gemma4", kGemma4Classes, kGemmaTanhGelu, !kInterleaved, kGemma4Fields, gemma4_defaults},
    {"gemma4", kGemma4UnifiedClasses, kGemmaTanhGelu, !kInterleaved, kGemma4Fields,
     gemma4_unified_defaults},
    {"phi3", kPhi3Classes, kSilu, !kInterleaved, kRmsFields, phi3_defaults},
    {"smollm3", kSmolLm3Classes, kSilu, kInterleaved, kRmsFields, smollm3_defaults},
    {"olmo2", kOlmo2Classes, kSilu, !kInterleaved, kRmsFields, olmo2_defaults},
    {"olmo2", kOlmo3Classes, kSilu, !kInterleaved, kRmsFields, olmo3_defaults},
    {"granite", kGraniteClasses, kSilu, kInterleaved, kGraniteFields, granite_defaults},
    {"granitemoe", kGraniteMoeClasses, kSilu, kInterleaved, kGraniteMoeFields,
     granite_moe_defaults},
    {"dots1", kDots1Classes, kSilu, !kInterleaved, kDots1Fields, dots1_defaults},
    {"deepseek2", kDeepSeek2Classes, kSilu, kInterleaved, kDeepSeekFields, deepseek2_defaults},
    {"deepseek2", kDeepSeek3Classes, kSilu, kInterleaved, kDeepSeekFields, deepseek3_defaults},
    {"deepseek2", kGlm4MoeLiteClasses, kSilu, kInterleaved, kDeepSeekFields,
     glm4_moe_lite_defaults},
    {"deepseek2", kYoutuClasses, kSilu, kInterleaved, kDeepSeekFields, youtu_defaults},
    {"deepseek2", kSarvamMlaClasses, kSilu, kInterleaved, kSarvamMlaFields, sarvam_mla_defaults},
    {"mistral4", kMistral4Classes, kSilu, kInterleaved, kDeepSeekFields, mistral4_defaults},
    {"longcat-flash", kLongCatClasses, kSilu, kInterleaved, kLongCatFields, longcat_defaults},
    {"deepseek32", kDeepSeek32Classes, kSilu, kInterleaved, kSparseFields, deepseek32_defaults},
    {"glm-dsa", kGlmDsaClasses, kSilu, kInterleaved, kSparseFields, glm_dsa_defaults},
    {"kimi-linear", kKimiLinearClasses, kSilu, !kInterleaved, kKimiLinearFields,
     kimi_linear_defaults, false, LayerMixer::kKimiDelta},
    {"bailingmoe3", kLing3Classes, kSilu, kInterleaved, kLing3Fields, ling3_defaults, false,
     LayerMixer::kKimiDelta},
    {"minimax-01", kMiniMaxClasses, kSilu, !kInterleaved, kMiniMaxFields, minimax_defaults, false,
     LayerMixer::kLightning},
    {"olmoe", kOlmoeClasses, kSilu, !kInterleaved, kOlmoeFields, olmoe_defaults},
    {"qwen2moe", kQwen2MoeClasses, kSilu, !kInterleaved, kQwen2MoeFields, qwen2_moe_defaults},
    {"qwen3moe", kQwen3MoeClasses, kSilu, !kInterleaved, kQwen3MoeFields, qwen3_moe_defaults},
    {"qwen3vlmoe", kQwen3VlMoeClasses, kSilu, !kInterleaved, kQwen3MoeFields,
     qwen3_vl_moe_defaults},
    {"lfm2", kLfm2Classes, kSilu, !kInterleaved, kLfm2Fields, lfm2_defaults, false,
     LayerMixer::kShortConv},
    {"lfm2moe", kLfm2MoeClasses, kSilu, !kInterleaved, kLfm2MoeFields, lfm2_moe_defaults, false,
     LayerMixer::kShortConv},
    {"lfm3", kLfm3Classes, kSilu, !kInterleaved, kLfm3Fields, lfm3_defaults, false,
     LayerMixer::kShortConv},
    {"qwen35", kQwen35Classes, kSilu, !kInterleaved, kQwen35Fields, qwen35_defaults, false,
     LayerMixer::kDeltaNet},
    {"qwen35moe", kQwen35MoeClasses, kSilu, !kInterleaved, kQwen35MoeFields, qwen35_moe_defaults,
     false, LayerMixer::kDeltaNet},
    {"qwen3next", kQwen3NextClasses, kSilu, !kInterleaved, kQwen35MoeFields, qwen3_next_defaults,
     false, LayerMixer::kDeltaNet},
    {"qwen4exp", kQwen4Classes, kSilu, !kInterleaved, kQwen4Fields, qwen4_defaults, false,
     LayerMixer::kDeltaNet},
    {"olmo-hybrid", kOlmoHybridClasses, kSilu, !kInterleaved, kOlmoHybridFields,
     olmo_hybrid_defaults, false, LayerMixer::kDeltaNet},
    {"starcoder2", kStarCoder2Classes, kGeluTanh, !kInterleaved, kStarCoder2Fields,
     starcoder2_defaults},
    {"seed_oss", kSeedOssClasses, kSilu, !kInterleaved, kRmsFields, seed_oss_defaults},
    {"exaone4", kExaone4Classes, kSilu, !kInterleaved, kRmsFields, exaone4_defaults},
    {"ernie4_5", kErnieClasses, kSilu, kInterleaved, kRmsFields, ernie4_5_defaults},
    {"ernie4_5-moe", kErnieMoeClasses, kSilu, kInterleaved, kErnieMoeFields, ernie4_5_moe_defaults},
    {"helium", kHeliumClasses, kSilu, kInterleaved, kRmsFields, helium_defaults},
    {"chatglm", kGlmClasses, kSilu, kInterleaved, kRmsFields, glm_defaults},
    {"glm4", kGlm4Classes, kSilu, kInterleaved, kRmsFields, glm_defaults},
    {"glm4", kGlm4vClasses, kSilu, kInterleaved, kRmsFields, glm4v_defaults},
    {"glm4moe", kGlm4MoeClasses, kSilu, !kInterleaved, kGlm4MoeFields, glm4_moe_defaults},
    {"glm4moe", kGlm4vMoeClasses, kSilu, !kInterleaved, kGlm4MoeFields, glm4v_moe_defaults},
    {"glm4moe", kSolarOpenClasses, kSilu, !kInterleaved, kGlm4MoeFields, solar_open_defaults},
    {"minimax-m2", kMiniMaxM2Classes, kSilu, !kInterleaved, kMiniMaxM2Fields, minimax_m2_defaults},
    {"minimax-m3", kMiniMaxM3Classes, kSwiGluOai, !kInterleaved, kM3Fields, minimax_m3_defaults},
    {"flexolmo", kFlexOlmoClasses, kSilu, !kInterleaved, kOlmoeFields, flex_olmo_defaults},
    {"cwm", kCwmClasses, kSilu, !kInterleaved, kRmsFields, cwm_defaults},
    {"gpt-oss", kGptOssClasses, kSilu, !kInterleaved, kMiniMaxM2Fields, gpt_oss_defaults},
    {"command-r", kCohereClasses, kSilu, kInterleaved, kCohereFields, cohere_defaults},
    {"cohere2", kCohere2Classes, kSilu, kInterleaved, kCohereFields, cohere2_defaults},
    {"phi2", kPhiClasses, kGeluTanhOfPhi, !kInterleaved, kLayerNormFields, phi_defaults},
    {"gptneox", kGptNeoxClasses, kGeluErf, !kInterleaved, kLayerNormFields, gpt_neox_defaults},
    {"arcee", kArceeClasses, kReluSquared, kInterleaved, kRmsFields, arcee_defaults},
    {"nemotron", kNemotronClasses, kReluSquared, !kInterleaved, kNemotronFields, nemotron_defaults},
    {"jais2", kJais2Classes, kReluSquared, !kInterleaved, kLayerNormFields, jais2_defaults},
    {"stablelm", kStableLmClasses, kSilu, !kInterleaved, kLayerNormFields, stablelm_defaults},
    {"olmo", kOlmoClasses, kSilu, kInterleaved, kOlmoFields, olmo_defaults},
    {"vaultgemma", kVaultGemmaClasses, kGeluTanh, !kInterleaved, kSoftCapFields, gemma2_defaults},
    {"gpt2", kGpt2Classes, kGeluTanhOfPhi, !kInterleaved, kGpt2Fields, gpt2_defaults, false,
     std::nullopt, kGptFfnFactor},
    {"starcoder", kGptBigCodeClasses, kGeluTanhOfPhi, !kInterleaved, kGpt2Fields,
     gpt_big_code_defaults, false, std::nullopt, kGptFfnFactor},
    {"gptneo", kGptNeoClasses, kGeluTanhOfPhi, !kInterleaved, kGptNeoFields, gpt_neo_defaults,
     false, std::nullopt, kGptFfnFactor},
    {"gptj", kGptJClasses, kGeluTanhOfPhi, kInterleaved, kGpt2Fields, gpt_j_defaults, false,
     std::nullopt, kGptFfnFactor},
    {"codegen", kCodeGenClasses, kGeluTanhOfPhi, kInterleaved, kGpt2Fields, gpt_j_defaults, false,
     std::nullopt, kGptFfnFactor},
    {"opt", kOptClasses, kRelu, !kInterleaved, kOptFields, opt_defaults},
    {"persimmon", kPersimmonClasses, kReluSquared, !kInterleaved, kLayerNormFields,
     persimmon_defaults},
    {"openai-gpt", kGptClasses, kGeluErf, !kInterleaved, kGpt2Fields, gpt2_defaults, false,
     std::nullopt, kGptFfnFactor},
    {"ctrl", kCtrlClasses, kRelu, !kInterleaved, kCtrlFields, ctrl_defaults},
    {"xglm", kXglmClasses, kGeluErf, !kInterleaved, kXglmFields, xglm_defaults},
    {"biogpt", kBioGptClasses, kGeluErf, !kInterleaved, {}, biogpt_defaults},
    {"gptneox-japanese", kGptNeoxJapaneseClasses, kGeluErf, !kInterleaved, kLayerNormFields,
     gpt_neox_japanese_defaults, false, std::nullopt, kGptFfnFactor},
    {"falcon", kFalconClasses, kGeluErf, !kInterleaved, kFalconFields, falcon_defaults, false,
     std::nullopt, kGptFfnFactor},
    {"bloom", kBloomClasses, kGeluTanhOfPhi, !kInterleaved, kBloomFields, bloom_defaults, false,
     std::nullopt, kGptFfnFactor},
    {"mpt", kMptClasses, kGeluErf, !kInterleaved, kMptFields, mpt_defaults, false, std::nullopt,
     kGptFfnFactor},
    {"mamba", kMambaClasses, kSilu, !kInterleaved, kMambaFields, mamba_defaults, false,
     LayerMixer::kMamba},
    {"mamba", kFalconMambaClasses, kSilu, !kInterleaved, kMambaFields, falcon_mamba_defaults, false,
     LayerMixer::kMamba},
    {"jamba", kJambaClasses, kSilu, !kInterleaved, kJambaFields, jamba_defaults, false,
     LayerMixer::kMamba},
    {"mamba2", kMamba2Classes, kSilu, !kInterleaved, kMamba2Fields, mamba2_defaults, false,
     LayerMixer::kMamba2},
    {"granitehybrid", kGraniteHybridClasses, kSilu, kInterleaved, kGraniteHybridFields,
     granite_hybrid_defaults, false, LayerMixer::kMamba2},
    {"bamba", kBambaClasses, kSilu, !kInterleaved, kBambaFields, bamba_defaults, false,
     LayerMixer::kMamba2},
    {"falcon-h1", kFalconH1Classes, kSilu, !kInterleaved, kFalconH1Fields, falcon_h1_defaults,
     false, LayerMixer::kMamba2Beside},
    {"zamba2", kZamba2Classes, kGeluOfZamba, !kInterleaved, kZamba2Fields, zamba2_defaults, false,
     LayerMixer::kMamba2, kGptFfnFactor},
    {"nemotron_h", kNemotronHClasses, kReluSquared, !kInterleaved, kNemotronHFields,
     nemotron_h_defaults, false, LayerMixer::kMamba2},
    {"rwkv7", kRwkv7Classes, kRwkv7Activations, !kInterleaved, kRwkv7Fields, rwkv7_defaults, false,
     LayerMixer::kRwkv7, kGptFfnFactor},
    {"recurrentgemma", kRecurrentGemmaClasses, kGeluTanh, !kInterleaved, kRecurrentGemmaFields,
     recurrent_gemma_defaults, false, LayerMixer::kRgLru},
    {"apertus", kApertusClasses, kXielu, !kInterleaved, kRmsFields, apertus_defaults},
    {"apertus", kApertus15Classes, kXielu, !kInterleaved, kApertus15Fields, apertus15_defaults},
    {"inkling", kInklingClasses, kSilu, !kInterleaved, kInklingFields, inkling_defaults},
    {"hunyuan-dense", kHunyuanClasses, kSilu, !kInterleaved, kRmsFields, hunyuan_defaults},
    {"hunyuan-moe", kHunyuanMoeClasses, kSilu, !kInterleaved, kHunyuanMoeFields,
     hunyuan_moe_defaults},
    {"hyperclovax", kHyperClovaClasses, kSilu, !kInterleaved, kGraniteFields, hyperclova_defaults},
    {"phimoe", kPhiMoeClasses, kSilu, !kInterleaved, kPhiMoeFields, phi_moe_defaults},
    {"afmoe", kAfMoeClasses, kSilu, !kInterleaved, kAfMoeFields, afmoe_defaults},
    {"mellum", kMellumClasses, kSilu, !kInterleaved, kMellumFields, mellum_defaults},
    {"hy_v3", kHyV3Classes, kSilu, !kInterleaved, kHyV3Fields, hy_v3_defaults},
    {"cohere2moe", kCohere2MoeClasses, kSilu, kInterleaved, kCohere2MoeFields,
     cohere2_moe_defaults},
    {"nanochat", kNanoChatClasses, kReluSquared, !kInterleaved, kNanoChatFields, nanochat_defaults},
    {"granite-swa", kGraniteSwaClasses, kSilu, !kInterleaved, kGraniteSwaFields,
     granite_swa_defaults},
    {"granite-swa", kGraniteMoeSwaClasses, kSilu, !kInterleaved, kGraniteMoeSwaFields,
     granite_moe_swa_defaults},
    {"minicpm3", kMiniCpm3Classes, kSilu, !kInterleaved, kMiniCpm3Fields, minicpm3_defaults},
    {"bitnet", kBitNetClasses, kReluSquared, !kInterleaved, kBitNetFields, bitnet_defaults},
    {"hy_v4", kHyV4Classes, kSilu, !kInterleaved, kHyV4Fields, hy_v4_defaults},
    {"deepseek4", kDeepSeek4Classes, kSilu, !kInterleaved, kDeepSeek4Fields, deepseek4_defaults},
    {"axk1", kAxK1Classes, kSilu, kInterleaved, kDeepSeekFields, axk1_defaults},
    {"axk2", kAxK2Classes, kSilu, kInterleaved, kAxK2Fields, axk2_defaults},
    {"dbrx", kDbrxClasses, kSilu, !kInterleaved, kDbrxFields, dbrx_defaults},
    {"mimo2", kMiMo2Classes, kSilu, !kInterleaved, kMiMo2Fields, mimo2_defaults},
    {"flint", kFlintClasses, kSilu, !kInterleaved, kFlintFields, flint_defaults},
    {"kolibri1", kKolibriClasses, kSilu, !kInterleaved, kFlintFields, kolibri_defaults},
    {"sarvam-moe", kSarvamMoeClasses, kSilu, !kInterleaved, kSarvamMoeFields, sarvam_moe_defaults},
    {"laguna", kLagunaClasses, kSilu, !kInterleaved, kLagunaFields, laguna_defaults},
    {"step35", kStepClasses, kSilu, !kInterleaved, kStepFields, step_defaults},
    {"exaone-moe", kExaoneMoeClasses, kSilu, !kInterleaved, kExaoneMoeFields, exaone_moe_defaults},
});

}  // namespace

std::span<const ConfigField> common_fields() { return kCommonFields; }
std::span<const ModelFamily> model_families() { return kFamilies; }

}  // namespace headrace
