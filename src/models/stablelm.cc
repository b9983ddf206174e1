#include "models/stablelm.h"

namespace headrace {

DecoderSpec stablelm_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayer;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.pre_norm = NormKind::kLayer;
    layer.attention().out_bias = false;
    if (config.mixers.parallel) layer.form = LayerForm::kParallelShared;
  });
  return spec;
}

}  // namespace headrace
