#include "models/smollm3.h"

namespace headrace {

DecoderSpec smollm3_spec(const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back({});  // rotates nothing
  for_each_attention(spec, [&](AttentionSpec& layer, int32_t i) {
    const bool rotates = config.rope_layers.empty() ? (i + 1) % kPeriod != 0
                                                    : config.rope_layers[static_cast<size_t>(i)];
    layer.rope = rotates ? 0 : 1;
    if (config.sliding_layers.empty() && rotates) layer.window = 0;
  });
  return spec;
}

}  // namespace headrace
