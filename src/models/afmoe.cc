#include "models/afmoe.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kAfMoeNames = std::to_array<HfTensorName>({
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.pre_mlp_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.post_mlp_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    {"model.layers.{}.self_attn.gate_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.mlp.router.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b.bias"},
});

}  // namespace

DecoderSpec afmoe_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back({});  // rotates nothing
  slide_all_but_each(spec, config, kPeriod);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    layer.post_norm = NormKind::kRms;
    AttentionSpec& attention = layer.attention();
    attention.qk_norm = QkNorm::kHead;
    attention.gated = attention.gates.apart = true;
    attention.rope = attention.window > 0 ? 0 : 1;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

HfTensorNames afmoe_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kAfMoeNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
