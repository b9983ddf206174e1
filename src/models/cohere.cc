#include "models/cohere.h"

namespace headrace {

DecoderSpec cohere_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.logit_scale = config.logit_divisor;  // these files' number multiplies
  spec.output_norm = NormKind::kLayerNoBias;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayerNoBias;
    layer.form = LayerForm::kParallelShared;
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

}  // namespace headrace
