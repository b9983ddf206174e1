#include "models/qwen.h"

#include <array>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr auto kQwen3VlMoeNames = std::to_array<HfTensorName>({
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight", HfForm::kTurnedByWidth},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", 0, "",
     HfForm::kTurnedByWidth},
});

}  // namespace

DecoderSpec qwen3_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(spec, [](AttentionSpec& layer, int32_t) { layer.qk_norm = QkNorm::kHead; });
  return spec;
}

DecoderSpec mellum_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  DecoderSpec spec = qwen3_spec(config);
  slide_all_but_each(spec, config, kPeriod);
  const double theta = config.rope_theta_local > 0 ? config.rope_theta_local : config.rope_theta;
  spec.ropes.push_back(plain_rope_table(theta, config.rope_dim));
  for_each_attention(spec,
                     [](AttentionSpec& layer, int32_t) { layer.rope = layer.window > 0 ? 1 : 0; });
  return spec;
}

DecoderSpec hy_v3_spec(const ModelConfig& config) {
  DecoderSpec spec = qwen3_spec(config);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture == nullptr) return;
    mixture->choice_bias = true;
    mixture->choice_bias_name = "exp_probs_b";  // as llama.cpp writes it
  });
  return spec;
}

DecoderSpec qwen2_moe_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture == nullptr) return;
    mixture->router.normalised = config.experts.normalised.value_or(false);
    if (mixture->shared_width > 0) mixture->router.shared = SharedExpert::kGated;
  });
  return spec;
}

HfTensorNames qwen3_vl_moe_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kQwen3VlMoeNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
