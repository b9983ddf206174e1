#include "models/ernie.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kErnieMoeNames = std::to_array<HfTensorName>({
    {"model.layers.{}.mlp.moe_statics.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
});

}  // namespace

DecoderSpec ernie4_5_moe_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

HfTensorNames ernie4_5_moe_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kErnieMoeNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
