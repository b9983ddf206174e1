#include "models/exaone4.h"

namespace headrace {

DecoderSpec exaone4_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back({});  // rotates nothing
  slide_all_but_each(spec, config, kPeriod);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.pre_norm = NormKind::kNone;
    layer.post_norm = NormKind::kRms;
    layer.attention().qk_norm = QkNorm::kHead;
    layer.attention().rope = config.window > 0 && layer.attention().window == 0 ? 1 : 0;
  });
  return spec;
}

}  // namespace headrace
