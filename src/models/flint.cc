#include "models/flint.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kFlintNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.softmax_offset", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
});

constexpr auto kKolibriNames = std::to_array<HfTensorName>({
    {"model.layers.{}.post_attn_norm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.post_ffn_norm.weight", "blk.{}.post_ffw_norm.weight"},
    {"model.layers.{}.post_self_attn_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    {"model.layers.{}.moe.router.expert_bias", "blk.{}.exp_probs_b.bias"},
});

}  // namespace

DecoderSpec flint_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back({});  // rotates nothing
  for_each_attention(spec, [](AttentionSpec& layer, int32_t) {
    layer.qk_norm = QkNorm::kHead;
    layer.sinks = true;
    layer.rope = layer.window > 0 ? 0 : 1;
  });
  return spec;
}

DecoderSpec kolibri_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 5;
  DecoderSpec spec = flint_spec(config);
  slide_all_but_each(spec, config, kPeriod);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.post_norm = NormKind::kRms;
    layer.attention().sinks = false;
    layer.attention().rope = config.window > 0 && layer.attention().window == 0 ? 1 : 0;
    std::get<MixtureSpec>(layer.feed_forward).choice_bias = true;
  });
  return spec;
}

HfTensorNames kolibri_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kKolibriNames, expert_hf_names());
  return kAll;
}

HfTensorNames flint_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kFlintNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
