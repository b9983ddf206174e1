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

DecoderSpec exaone_moe_spec(const ModelConfig& config) {
  ModelConfig full = config;
  full.experts.scores = ExpertScores::kSigmoid;
  DecoderSpec spec = exaone4_spec(full);
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kRms;
    layer.post_norm = NormKind::kNone;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  }
  return spec;
}

}  // namespace headrace
