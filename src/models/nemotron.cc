#include "models/nemotron.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr float kWeightOffset = 1;

constexpr auto kNemotronNames = std::to_array<HfTensorName>({
    {"model.norm.weight", "output_norm.weight", kWeightOffset},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kWeightOffset},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", kWeightOffset},
});

}  // namespace

DecoderSpec arcee_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kReluSquared;
  }
  return spec;
}

DecoderSpec nanochat_spec(const ModelConfig& config) {
  DecoderSpec spec = arcee_spec(config);
  spec.embedding_norm = spec.output_norm = NormKind::kRmsBare;
  for (double& frequency : spec.ropes.front().inv_freq) frequency = -frequency;
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    layer.pre_norm = NormKind::kRmsBare;
    layer.attention().qk_norm = QkNorm::kHeadBehind;
    layer.attention().bare_qk_norm = true;
  });
  return spec;
}

DecoderSpec nemotron_spec(const ModelConfig& config) {
  DecoderSpec spec = arcee_spec(config);
  spec.output_norm = NormKind::kLayer;
  for (DecoderLayerSpec& layer : spec.layers) layer.pre_norm = NormKind::kLayer;
  return spec;
}

HfTensorNames nemotron_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kNemotronNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
