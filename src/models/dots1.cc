#include "models/dots1.h"

#include "models/qwen.h"

namespace headrace {

DecoderSpec dots1_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.scores) full.experts.scores = ExpertScores::kSigmoid;
  DecoderSpec spec = qwen3_spec(full);
  for (DecoderLayerSpec& layer : spec.layers) {
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  }
  return spec;
}

}  // namespace headrace
