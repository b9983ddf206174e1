#include "models/hyperclova.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kHyperClovaNames = std::to_array<HfTensorName>({
    {"model.layers.{}.post_norm1.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.post_norm2.weight", "blk.{}.post_ffw_norm.weight"},
});

}  // namespace

DecoderSpec hyperclova_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.logit_scale = config.logit_divisor;  // logits are multiplied by it
  if (!config.mixers.post_norms) return spec;
  for (DecoderLayerSpec& layer : spec.layers) layer.post_norm = NormKind::kRms;
  return spec;
}

HfTensorNames hyperclova_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kHyperClovaNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
