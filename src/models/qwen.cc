#include "models/qwen.h"

namespace headrace {

DecoderSpec qwen3_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(spec, [](AttentionSpec& layer, int32_t) { layer.qk_norm = QkNorm::kHead; });
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

}  // namespace headrace
