#include "models/seed_oss.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kSeedOssNames = std::to_array<HfTensorName>({
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
});

}  // namespace

DecoderSpec seed_oss_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for (DecoderLayerSpec& layer : spec.layers) layer.ffn_norm_name = "post_attention_norm";
  return spec;
}

HfTensorNames seed_oss_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kSeedOssNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
