#include "models/glm.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kGlm4Names = std::to_array<HfTensorName>({
    {"model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
});

// GGUF files name the network's norm by its place behind the attention.
constexpr auto kGlm4MoeNames = std::to_array<HfTensorName>({
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
});

// Sarvam's files, as Ling's of the same layers.
constexpr auto kSarvamNames = std::to_array<HfTensorName>({
    {"model.word_embeddings.weight", "token_embd.weight"},
    {"model.layers.{}.attention.query_key_value.weight", "blk.{}.attn_qkv.weight"},
    {"model.layers.{}.attention.query_key_value.bias", "blk.{}.attn_qkv.bias"},
    {"model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.attention.query_layernorm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.attention.key_layernorm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.mlp.gate.expert_bias", "blk.{}.exp_probs_b.bias"},
});

}  // namespace

DecoderSpec glm_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(spec, [](AttentionSpec& layer, int32_t) { layer.out_bias = false; });
  return spec;
}

DecoderSpec glm4_spec(const ModelConfig& config) {
  DecoderSpec spec = glm_spec(config);
  for (DecoderLayerSpec& layer : spec.layers) layer.post_norm = NormKind::kRms;
  return spec;
}

DecoderSpec glm4_moe_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.scores) full.experts.scores = ExpertScores::kSigmoid;
  DecoderSpec spec = glm_spec(full);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.ffn_norm_name = "post_attention_norm";
    if (config.mixers.head_norms.value_or(false)) layer.attention().qk_norm = QkNorm::kHead;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

HfTensorNames glm4_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kGlm4Names, llama_hf_names());
  return kAll;
}

HfTensorNames sarvam_moe_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kSarvamNames, glm4_moe_hf_names());
  return kAll;
}

HfTensorNames glm4_moe_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kGlm4MoeNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
