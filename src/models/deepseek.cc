#include "models/deepseek.h"

#include <array>
#include <cmath>
#include <vector>

#include "models/llama4.h"
#include "models/rope_table.h"

namespace headrace {
namespace {

// The library norms latents with a constant of its own, whatever the file says of other norms.
constexpr float kLatentNormEps = 1e-6f;

constexpr auto kLatentNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    {"model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight"},
    {"model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
    {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    {"model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    {"model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_kv_b.weight"},
    {"model.layers.{}.self_attn.indexer.k_norm.weight", "blk.{}.indexer.k_norm.weight"},
    {"model.layers.{}.self_attn.indexer.k_norm.bias", "blk.{}.indexer.k_norm.bias"},
    {"model.layers.{}.self_attn.indexer.wk.weight", "blk.{}.indexer.attn_k.weight"},
    {"model.layers.{}.self_attn.indexer.weights_proj.weight", "blk.{}.indexer.proj.weight"},
    {"model.layers.{}.self_attn.indexer.wq_b.weight", "blk.{}.indexer.attn_q_b.weight"},
});

// YaRN sharpens scores where the file says so (mscale_all_dim).
float score_scale(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const double plain = 1.0 / std::sqrt(static_cast<double>(config.mixers.latent.key_dim));
  if (scaling.kind == RopeScaling::Kind::kNone) return static_cast<float>(plain);
  const double mscale = yarn_mscale(scaling.factor, scaling.mscale_all_dim);
  return static_cast<float>(plain * mscale * mscale);
}

KeyIndexSpec key_index_of(const LatentConfig& latent, size_t layer) {
  const bool carried = !latent.index_shared.empty();
  return {.heads = latent.index_heads,
          .dim = latent.index_dim,
          .top = latent.index_top,
          .rows_interleaved = latent.index_interleaved,
          .shared = carried && latent.index_shared[layer],
          .carried = carried};
}

LatentAttentionSpec latent_attention_of(const ModelConfig& config) {
  const LatentConfig& latent = config.mixers.latent;
  return {.heads = config.heads,
          .rank = latent.rank,
          .query_rank = latent.query_rank,
          .plain_dim = latent.plain_dim,
          .rope_dim = latent.rope_dim,
          .value_dim = latent.value_dim,
          .scale = score_scale(config),
          .norm_eps = kLatentNormEps,
          .temperature = temperature_of(config),
          .rows_interleaved = config.qk_rows_interleaved,
          .joined = latent.joined};
}

}  // namespace

DecoderSpec deepseek_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  const LatentAttentionSpec attention = latent_attention_of(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    LatentAttentionSpec own = attention;
    own.index = key_index_of(config.mixers.latent, static_cast<size_t>(i));
    layer.mixer = own;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) {
      mixture->choice_bias = mixture->router.scores == RouterScores::kSigmoid;
    }
  });
  return spec;
}

DecoderSpec axk1_spec(const ModelConfig& config) {
  DecoderSpec spec = deepseek_spec(config);
  for (DecoderLayerSpec& layer : spec.layers) {
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture == nullptr) continue;
    mixture->choice_bias_may_lack = true;
    layer.post_norm = NormKind::kRms;
    layer.mixer_ends_bare = true;
  }
  return spec;
}

DecoderSpec axk2_spec(const ModelConfig& config) {
  DecoderSpec spec = deepseek_spec(config);
  const int32_t rank = config.mixers.latent.norm_gate_rank;
  for (DecoderLayerSpec& layer : spec.layers) {
    auto& attention = std::get<LatentAttentionSpec>(layer.mixer);
    attention.gate_dim = attention.value_dim;
    attention.query_and_gates = true;
    layer.mixer_gate_rank = rank;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture == nullptr) continue;
    mixture->router.others_are_zero = true;
    layer.network_gate_rank = rank;
  }
  return spec;
}

HfTensorNames axk2_hf_names() {
  static constexpr auto kNames = std::to_array<HfTensorName>({
      {"model.layers.{}.input_layernorm.norm.weight", "blk.{}.attn_norm.weight"},
      {"model.layers.{}.input_layernorm.W_down.weight", "blk.{}.attn_norm_gate.a.weight"},
      {"model.layers.{}.input_layernorm.W_up.weight", "blk.{}.attn_norm_gate.b.weight"},
      {"model.layers.{}.post_attention_layernorm.norm.weight", "blk.{}.ffn_norm.weight"},
      {"model.layers.{}.post_attention_layernorm.W_down.weight", "blk.{}.ffn_norm_gate.a.weight"},
      {"model.layers.{}.post_attention_layernorm.W_up.weight", "blk.{}.ffn_norm_gate.b.weight"},
  });
  static const std::vector<HfTensorName> kAll = names_before(kNames, deepseek_hf_names());
  return kAll;
}

HfTensorNames axk1_hf_names() {
  static constexpr auto kNames = std::to_array<HfTensorName>(
      {{"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"}});
  static const std::vector<HfTensorName> kAll = names_before(kNames, deepseek_hf_names());
  return kAll;
}

HfTensorNames deepseek_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kLatentNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
