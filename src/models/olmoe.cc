#include "models/olmoe.h"

namespace headrace {

DecoderSpec olmoe_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.normalised) full.experts.normalised = false;
  DecoderSpec spec = uniform_decoder(full);
  for_each_attention(spec, [](AttentionSpec& layer, int32_t) { layer.qk_norm = QkNorm::kRow; });
  return spec;
}

}  // namespace headrace
