#include "weights/model_family.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

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
    {&ModelConfig::ffn, "feed_forward_length", "intermediate_size", 1, kModelLimits.ffn_max,
     kRequired},
    {&ModelConfig::vocab, "", "vocab_size", 1, kModelLimits.vocab_max, kRequired},
    {&ModelConfig::context_length, "context_length", "max_position_embeddings", 1,
     kModelLimits.context_length_max, kRequired},
    {&ModelConfig::heads, "attention.head_count", "num_attention_heads", 1, kModelLimits.heads_max,
     kRequired},
    {&ModelConfig::kv_heads, "attention.head_count_kv", "num_key_value_heads", 1,
     kModelLimits.heads_max},
    {&ModelConfig::head_dim, "attention.key_length", "head_dim", 1, kModelLimits.head_dim_max},
    {&ModelConfig::rope_dim, "rope.dimension_count", "", 1, kModelLimits.head_dim_max},
    {&ModelConfig::rope_theta, "rope.freq_base", "rope_theta", 1, kThetaMax},
    {&ModelConfig::rope_theta_local, "rope.freq_base_swa", "rope_local_base_freq", 1, kThetaMax},
    {&ModelConfig::window, "attention.sliding_window", "sliding_window", 0,
     kModelLimits.context_length_max, kNullable},
});

constexpr ConfigField kRmsEps{
    &ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1, kRequired};
constexpr ConfigField kLayerNormEps{
    &ModelConfig::rms_eps, "attention.layer_norm_epsilon", "norm_epsilon", 1e-20, 1, kRequired};
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
// GGUF files of gated DeltaNet are not read yet.
constexpr auto kQwen35Fields = std::to_array<ConfigField>({
    kRmsEps,
    {&MixerConfig::conv_taps, "", "linear_conv_kernel_dim", 2, kModelLimits.conv_taps_max},
    {&MixerConfig::key_heads, "", "linear_num_key_heads", 1, kModelLimits.heads_max},
    {&MixerConfig::value_heads, "", "linear_num_value_heads", 1, kModelLimits.heads_max},
    {&MixerConfig::key_dim, "", "linear_key_head_dim", 1, kModelLimits.head_dim_max},
    {&MixerConfig::value_dim, "", "linear_value_head_dim", 1, kModelLimits.head_dim_max},
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
constexpr auto kLayerNormFields = std::to_array<ConfigField>({kLayerNormEps});
constexpr auto kSoftCapFields = std::to_array<ConfigField>({
    kRmsEps,
    {&ModelConfig::attention_soft_cap, "attn_logit_softcapping", "attn_logit_softcapping", 0,
     kScaleMax, kNullable},
    {&ModelConfig::logit_soft_cap, "final_logit_softcapping", "final_logit_softcapping", 0,
     kScaleMax, kNullable},
});
constexpr auto kGraniteFields = std::to_array<ConfigField>({
    kRmsEps,
    {&ModelConfig::attention_scale, "attention.scale", "attention_multiplier", 1e-9, kScaleMax},
    {&ModelConfig::embedding_scale, "embedding_scale", "embedding_multiplier", 1e-9, kScaleMax},
    {&ModelConfig::residual_scale, "residual_scale", "residual_multiplier", 1e-9, kScaleMax},
    {&ModelConfig::logit_divisor, "logit_scale", "logits_scaling", 1e-9, kScaleMax},
});
constexpr auto kGraniteMoeFields = [] {
  std::array<ConfigField, kGraniteFields.size() + 2> fields;
  *std::copy(kGraniteFields.begin(), kGraniteFields.end(), fields.begin()) =
      expert_count("num_local_experts");
  fields.back() = experts_used("num_experts_per_tok");
  return fields;
}();

// ---- what the Hugging Face classes assume
// --------------------------------------------------------

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
void qwen35_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 32768, 1e-6f);
  config.head_dim = 256;
  config.mixers = {.by_layer = {},
                   .gated_attention = true,
                   .conv_taps = 4,
                   .key_heads = 16,
                   .value_heads = 32,
                   .key_dim = 128,
                   .value_dim = 128,
                   .rate_is_log = true};
}
void qwen35_moe_defaults(ModelConfig& config) {
  qwen35_defaults(config);
  config.ffn = 1;  // no layer has a dense network
  config.experts = {.count = 256, .used = 8, .width = 512, .shared_width = 512};
}
void qwen3_next_defaults(ModelConfig& config) {
  qwen35_defaults(config);
  config.mixers.tensors_by_head = true;
  config.experts = {
      .count = 512, .used = 10, .width = 512, .shared_width = 512, .normalised = true};
}
void starcoder2_defaults(ModelConfig& config) {
  set_defaults(config, 1e4, 4096, 1e-5f);
  config.kv_heads = 2;
  config.qkv_bias = config.attention_out_bias = config.ffn_bias = true;
  config.tied_embeddings = true;
}

template <size_t kCount>
using NameArray = std::array<std::string_view, kCount>;

constexpr NameArray<1> kLlamaClasses{"LlamaForCausalLM"};
constexpr NameArray<1> kMistralClasses{"MistralForCausalLM"};
constexpr NameArray<1> kMixtralClasses{"MixtralForCausalLM"};
constexpr NameArray<1> kQwen2MoeClasses{"Qwen2MoeForCausalLM"};
constexpr NameArray<1> kQwen3MoeClasses{"Qwen3MoeForCausalLM"};
constexpr NameArray<1> kDots1Classes{"Dots1ForCausalLM"};
constexpr NameArray<1> kOlmoeClasses{"OlmoeForCausalLM"};
constexpr NameArray<1> kGraniteMoeClasses{"GraniteMoeForCausalLM"};
constexpr NameArray<1> kQwen2Classes{"Qwen2ForCausalLM"};
constexpr NameArray<1> kQwen3Classes{"Qwen3ForCausalLM"};
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
    {"qwen2", kQwen2Classes, kSilu, !kInterleaved, kRmsFields, qwen2_defaults, kActivationsFitF16},
    {"qwen3", kQwen3Classes, kSilu, !kInterleaved, kRmsFields, qwen3_defaults},
    {"gemma", kGemmaClasses, kGemmaGelu, !kInterleaved, kRmsFields, gemma_defaults},
    {"gemma2", kGemma2Classes, kGemmaGelu, !kInterleaved, kSoftCapFields, gemma2_defaults},
    {"gemma3", kGemma3Classes, kGemmaGelu, !kInterleaved, kSoftCapFields, gemma3_defaults},
    {"phi3", kPhi3Classes, kSilu, !kInterleaved, kRmsFields, phi3_defaults},
    {"smollm3", kSmolLm3Classes, kSilu, kInterleaved, kRmsFields, smollm3_defaults},
    {"olmo2", kOlmo2Classes, kSilu, !kInterleaved, kRmsFields, olmo2_defaults},
    {"olmo2", kOlmo3Classes, kSilu, !kInterleaved, kRmsFields, olmo3_defaults},
    {"granite", kGraniteClasses, kSilu, kInterleaved, kGraniteFields, granite_defaults},
    {"granitemoe", kGraniteMoeClasses, kSilu, kInterleaved, kGraniteMoeFields,
     granite_moe_defaults},
    {"dots1", kDots1Classes, kSilu, !kInterleaved, kDots1Fields, dots1_defaults},
    {"olmoe", kOlmoeClasses, kSilu, !kInterleaved, kOlmoeFields, olmoe_defaults},
    {"qwen2moe", kQwen2MoeClasses, kSilu, !kInterleaved, kQwen2MoeFields, qwen2_moe_defaults},
    {"qwen3moe", kQwen3MoeClasses, kSilu, !kInterleaved, kQwen3MoeFields, qwen3_moe_defaults},
    {"lfm2", kLfm2Classes, kSilu, !kInterleaved, kLfm2Fields, lfm2_defaults, false,
     LayerMixer::kShortConv},
    {"lfm2moe", kLfm2MoeClasses, kSilu, !kInterleaved, kLfm2MoeFields, lfm2_moe_defaults, false,
     LayerMixer::kShortConv},
    {"qwen35", kQwen35Classes, kSilu, !kInterleaved, kQwen35Fields, qwen35_defaults, false,
     LayerMixer::kDeltaNet},
    {"qwen35moe", kQwen35MoeClasses, kSilu, !kInterleaved, kQwen35MoeFields, qwen35_moe_defaults,
     false, LayerMixer::kDeltaNet},
    {"qwen3next", kQwen3NextClasses, kSilu, !kInterleaved, kQwen35MoeFields, qwen3_next_defaults,
     false, LayerMixer::kDeltaNet},
    {"starcoder2", kStarCoder2Classes, kGeluTanh, !kInterleaved, kLayerNormFields,
     starcoder2_defaults},
});

// ---- checks
// --------------------------------------------------------------------------------------

// The size of a head where a file does not say it.
Status derive_head_dim(const ConfigSource& source, ModelConfig& config) {
  if (config.hidden % config.heads != 0) {
    return source.corrupt_field(
        source.name_of(&ModelConfig::heads),
        fmt::format("{} heads do not divide the hidden size {} ({})", config.heads, config.hidden,
                    source.name_of(&ModelConfig::hidden)));
  }
  config.head_dim = config.hidden / config.heads;
  if (config.head_dim <= kModelLimits.head_dim_max) return ok_status();
  return source.corrupt_field(
      source.name_of(&ModelConfig::head_dim),
      fmt::format("{} is outside 1 to {}", config.head_dim, kModelLimits.head_dim_max));
}

Status check_head_sizes(const ConfigSource& source, const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    return source.corrupt_field(source.name_of(&ModelConfig::kv_heads),
                                fmt::format("{} key/value heads do not divide {} query heads",
                                            config.kv_heads, config.heads));
  }
  if (config.head_dim % 2 != 0) {
    return source.corrupt_field(source.name_of(&ModelConfig::head_dim),
                                fmt::format("head size {} is odd", config.head_dim));
  }
  if (config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim || config.rope_dim < 2) {
    return source.corrupt_field(
        source.gguf ? source.name_of(&ModelConfig::rope_dim) : "partial_rotary_factor",
        fmt::format("{} rotated dimensions: must be even and at most the head size {}",
                    config.rope_dim, config.head_dim));
  }
  if (config.qk_rows_interleaved && config.rope_dim != config.head_dim) {
    return source.unsupported_field(
        source.name_of(&ModelConfig::rope_dim),
        fmt::format("{} of {} dimensions rotated, with rows in interleaved order", config.rope_dim,
                    config.head_dim));
  }
  return ok_status();
}

// Width of experts where a file does not say it, then the relations between their numbers.
Status finish_experts(const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  if (experts.count == 0) return ok_status();
  if (experts.width == 0) experts.width = config.ffn;
  if (experts.shared_width == 0) {
    const int64_t shared = int64_t{experts.shared_count} * experts.width;
    if (shared > kModelLimits.ffn_max) {
      return source.corrupt_field(
          source.name_of(&ExpertConfig::shared_count),
          fmt::format("{} experts of width {} are wider than {}", experts.shared_count,
                      experts.width, kModelLimits.ffn_max));
    }
    experts.shared_width = static_cast<int32_t>(shared);
  }
  if (experts.scale == 0) experts.scale = 1;  // some writers' "none"
  if (experts.used < 1 || experts.used > experts.count) {
    return source.corrupt_field(
        source.name_of(&ExpertConfig::used),
        fmt::format("{} is outside 1 to the {} experts", experts.used, experts.count));
  }
  experts.groups = std::max(experts.groups, 1);
  if (experts.count % experts.groups != 0) {
    return source.corrupt_field(
        source.name_of(&ExpertConfig::groups),
        fmt::format("{} groups do not divide {} experts", experts.groups, experts.count));
  }
  experts.groups_used = std::max(experts.groups_used, 1);
  if (experts.groups_used > experts.groups ||
      experts.used > experts.count / experts.groups * experts.groups_used) {
    return source.corrupt_field(
        source.name_of(&ExpertConfig::groups_used),
        fmt::format("{} of {} groups of {} experts have no {} to choose", experts.groups_used,
                    experts.groups, experts.count / experts.groups, experts.used));
  }
  return ok_status();
}

// Where layers keep states.
Status check_mixers(const ConfigSource& source, const ModelConfig& config) {
  const MixerConfig& mixers = config.mixers;
  const bool any_attends =
      mixers.by_layer.empty() ||
      std::ranges::find(mixers.by_layer, LayerMixer::kAttention) != mixers.by_layer.end();
  if (!any_attends) {
    return source.unsupported_field(source.gguf ? "attention.head_count_kv" : "layer_types",
                                    "a model of which no layer attends is not supported");
  }
  if (mixers.key_heads == 0 || mixers.value_heads % mixers.key_heads == 0) return ok_status();
  return source.corrupt_field(source.name_of(&MixerConfig::value_heads),
                              fmt::format("{} key heads do not divide {} value heads",
                                          mixers.key_heads, mixers.value_heads));
}

Status check_rope_scaling(const ConfigSource& source, const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const std::string field =
      source.gguf ? fmt::format("{}.rope.scaling", source.family->architecture) : "rope_scaling";
  using Kind = RopeScaling::Kind;
  const auto bad = [&](std::string_view what) { return source.corrupt_field(field, what); };
  if (!(scaling.factor >= 1 && scaling.factor <= 1e6)) {
    return bad(fmt::format("factor {} is not between 1 and 1e6", scaling.factor));
  }
  if (!(scaling.attention_factor >= 0 && scaling.attention_factor <= 1e3)) {
    return bad(
        fmt::format("attention factor {} is not between 0 and 1000", scaling.attention_factor));
  }
  const bool needs_original = scaling.kind == Kind::kLlama3 || scaling.kind == Kind::kYarn ||
                              scaling.kind == Kind::kLongRope;
  if (needs_original && (scaling.original_context < 2 ||
                         scaling.original_context > kModelLimits.context_length_max)) {
    return bad(fmt::format("original context length {} is outside 2 to {}",
                           scaling.original_context, kModelLimits.context_length_max));
  }
  if (scaling.kind == Kind::kLlama3 &&
      !(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor &&
        scaling.high_freq_factor < 1e6)) {
    return bad(fmt::format("frequency factors {} and {} are no range", scaling.low_freq_factor,
                           scaling.high_freq_factor));
  }
  if (scaling.kind == Kind::kYarn &&
      !(scaling.beta_slow > 0 && scaling.beta_fast >= scaling.beta_slow &&
        scaling.beta_fast < 1e6 && std::abs(scaling.mscale) < 1e3 &&
        std::abs(scaling.mscale_all_dim) < 1e3)) {
    return bad("beta_fast, beta_slow or mscale out of range");
  }
  const auto length = static_cast<size_t>(config.rope_dim / 2);
  for (const auto* factors : {&scaling.short_factors, &scaling.long_factors}) {
    if (factors->empty()) continue;
    if (factors->size() != length) {
      return bad(fmt::format("{} factors for {} frequencies", factors->size(), length));
    }
    for (const double factor : *factors) {
      if (!(factor > 0 && factor < 1e9)) return bad(fmt::format("factor {}", factor));
    }
  }
  if (scaling.short_factors.size() != scaling.long_factors.size()) {
    return bad("short and long factors differ in number");
  }
  return ok_status();
}

}  // namespace

std::span<const ConfigField> common_fields() { return kCommonFields; }
std::span<const ModelFamily> model_families() { return kFamilies; }

bool activations_fit_f16(const ModelConfig& config) {
  // Mixtral is "llama" in files, and no row's word is of mixtures.
  return config.experts.count == 0 &&
         std::any_of(kFamilies.begin(), kFamilies.end(), [&](const ModelFamily& family) {
           return family.architecture == config.architecture && family.activations_fit_f16;
         });
}

Result<const ModelFamily*> find_gguf_family(const GgufFile& file) {
  HR_ASSIGN_OR_RETURN(const std::string_view name, file.require_string("general.architecture"));
  std::string known;
  std::string_view last;
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == name) return &family;
    if (family.architecture != last) {
      known += (known.empty() ? "" : ", ") + std::string(family.architecture);
    }
    last = family.architecture;
  }
  return file.unsupported_field(
      "general.architecture",
      fmt::format("\"{}\" is not supported (known: {})", printable(name), known));
}

const ModelFamily* find_hf_family(std::string_view hf_class) {
  for (const ModelFamily& family : kFamilies) {
    for (const std::string_view name : family.hf_classes) {
      if (name == hf_class) return &family;
    }
  }
  return nullptr;
}

namespace {

constexpr std::string_view kGeneratingEnd = "ForCausalLM";
constexpr struct {
  std::string_view end;
  HfClassUse use;
} kHeadlessEnds[] = {
    {"ForSequenceClassification", HfClassUse::kClassify},
    {"TextModel", HfClassUse::kEmbed},  // Gemma3TextModel
    {"Model", HfClassUse::kEmbed},
};

}  // namespace

HfClassUse hf_class_use(std::string_view hf_class) {
  for (const auto& row : kHeadlessEnds) {
    if (hf_class.ends_with(row.end)) return row.use;
  }
  return HfClassUse::kGenerate;
}

std::string generating_hf_class(std::string_view hf_class) {
  for (const auto& row : kHeadlessEnds) {
    if (!hf_class.ends_with(row.end)) continue;
    return std::string(hf_class.substr(0, hf_class.size() - row.end.size())) +
           std::string(kGeneratingEnd);
  }
  return std::string(hf_class);
}

bool ModelFamily::has_experts() const {
  return std::any_of(fields.begin(), fields.end(), [](const ConfigField& field) {
    return field.member == ConfigMember(&ExpertConfig::count);
  });
}

bool ModelFamily::reads_hf(std::string_view key) const {
  return std::ranges::any_of(fields, [&](const ConfigField& field) { return field.hf == key; });
}

std::string known_hf_classes() {
  std::string known;
  for (const ModelFamily& family : kFamilies) {
    for (const std::string_view name : family.hf_classes) {
      known += (known.empty() ? "" : ", ") + std::string(name);
    }
  }
  return known;
}

Status ConfigSource::corrupt_field(std::string_view field, std::string_view what) const {
  return corrupt(fmt::format("{}: {}: {}", file, field, what), std::string(field));
}
Status ConfigSource::unsupported_field(std::string_view field, std::string_view what) const {
  return unsupported(fmt::format("{}: {}: {}", file, field, what), std::string(field));
}
std::string ConfigSource::name_of(const ConfigField& field) const {
  return gguf ? fmt::format("{}.{}", family->architecture, field.gguf) : std::string(field.hf);
}
std::string ConfigSource::name_of(ConfigMember member) const {
  for (const auto fields : {common_fields(), family->fields}) {
    for (const ConfigField& field : fields) {
      if (field.member == member) return name_of(field);
    }
  }
  return "configuration";
}

Status set_field(const ConfigSource& source, const ConfigField& field, double value,
                 ModelConfig& config) {
  const bool whole = field.is_whole();
  if (!(value >= field.min && value <= field.max)) {  // NaN fails it too
    return source.corrupt_field(
        source.name_of(field),
        whole ? fmt::format("{:.0f} is outside {:.0f} to {:.0f}", value, field.min, field.max)
              : fmt::format("{} is not between {} and {}", value, field.min, field.max));
  }
  visit_member(config, field.member,
               [&]<class Value>(Value& member) { member = static_cast<Value>(value); });
  return ok_status();
}

bool is_missing(const ConfigField& field, const ModelConfig& config) {
  return field.presence == Presence::kRequired &&
         visit_member(config, field.member, [](const auto& value) { return value == 0; });
}

Status finish_config(const ConfigSource& source, ModelConfig& config) {
  if (config.head_dim == 0) HR_RETURN_IF_ERROR(derive_head_dim(source, config));
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.rope_dim == 0) config.rope_dim = config.head_dim;
  HR_RETURN_IF_ERROR(check_head_sizes(source, config));
  HR_RETURN_IF_ERROR(finish_experts(source, config));
  HR_RETURN_IF_ERROR(check_mixers(source, config));
  HR_RETURN_IF_ERROR(check_rope_scaling(source, config));
  const bool dynamic = config.rope_scaling.kind == RopeScaling::Kind::kDynamic;
  config.context_length_max = static_cast<int32_t>(
      std::min<double>(config.context_length * (dynamic ? config.rope_scaling.factor : 1.0),
                       kModelLimits.context_length_max));
  return ok_status();
}

Status set_end_ids(const ConfigSource& source, std::string_view field, std::span<const int64_t> ids,
                   ModelConfig& config) {
  for (const int64_t id : ids) {
    if (id < 0 || id >= config.vocab) {
      return source.corrupt_field(
          field, fmt::format("{} is no id of a vocabulary of {}", id, config.vocab));
    }
    config.end_ids.push_back(static_cast<int32_t>(id));
  }
  std::sort(config.end_ids.begin(), config.end_ids.end());
  config.end_ids.erase(std::unique(config.end_ids.begin(), config.end_ids.end()),
                       config.end_ids.end());
  return ok_status();
}

}  // namespace headrace
