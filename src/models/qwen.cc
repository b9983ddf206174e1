#include "models/qwen.h"

namespace headrace {

DecoderSpec qwen3_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(spec, [](AttentionSpec& layer, int32_t) { layer.qk_norm = QkNorm::kHead; });
  return spec;
}

}  // namespace headrace
