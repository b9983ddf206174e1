#include "models/cohere.h"

namespace headrace {

DecoderSpec cohere_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.logit_scale = config.logit_divisor;  // these files' number multiplies
  spec.output_norm = NormKind::kLayerNoBias;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayerNoBias;
    layer.form = LayerForm::kParallelShared;
    if (config.mixers.head_norms.value_or(false)) layer.attention().qk_norm = QkNorm::kEachLayer;
  }
  return spec;
}

DecoderSpec cohere2_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  DecoderSpec spec = cohere_spec(config);
  spec.ropes.push_back({});  // rotates nothing
  slide_all_but_each(spec, config, kPeriod);
  for_each_attention(spec,
                     [](AttentionSpec& layer, int32_t) { layer.rope = layer.window > 0 ? 0 : 1; });
  return spec;
}

DecoderSpec cohere2_moe_spec(const ModelConfig& config) {
  DecoderSpec spec = cohere2_spec(config);
  const NormKind norm = config.mixers.rms_norms ? NormKind::kRms : NormKind::kLayerNoBias;
  spec.output_norm = norm;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.pre_norm = norm;
    layer.attention().rope = config.rope_layers[static_cast<size_t>(i)] ? 0 : 1;
    const auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    const bool shares = mixture != nullptr && mixture->shared_width > 0;
    if (shares && config.experts.averaged) layer.network_scale = 0.5f;
  });
  return spec;
}

}  // namespace headrace
