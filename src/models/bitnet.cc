#include "models/bitnet.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kBitNetNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.attn_sub_norm.weight", "blk.{}.attn_sub_norm.weight"},
    {"model.layers.{}.mlp.ffn_sub_norm.weight", "blk.{}.ffn_sub_norm.weight"},
});

}  // namespace

DecoderSpec bitnet_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.attention().sub_norm = true;
    DenseSpec& network = layer.dense();
    network.activation = Activation::kReluSquared;
    network.sub_norm = true;
    network.norm_eps = config.rms_eps;
  });
  return spec;
}

HfTensorNames bitnet_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kBitNetNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
