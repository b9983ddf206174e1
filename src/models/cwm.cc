#include "models/cwm.h"

namespace headrace {

DecoderSpec cwm_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(spec, [&](AttentionSpec& layer, int32_t i) {
    if (config.sliding_layers.empty() && i % kPeriod == 0) layer.window = 0;
  });
  return spec;
}

}  // namespace headrace
