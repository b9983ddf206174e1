#include "models/minimax.h"

namespace headrace {

DecoderSpec minimax_m2_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.scores) full.experts.scores = ExpertScores::kSigmoid;
  DecoderSpec spec = uniform_decoder(full);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    layer.attention().qk_norm = QkNorm::kRow;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

}  // namespace headrace
