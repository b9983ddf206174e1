#include "models/phi.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kPhiNames = std::to_array<HfTensorName>({
    {"model.final_layernorm.weight", "output_norm.weight"},
    {"model.final_layernorm.bias", "output_norm.bias"},
    {"lm_head.bias", "output.bias"},
    {"model.layers.{}.self_attn.dense.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.dense.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias"},
    {"model.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias"},
});

}  // namespace

DecoderSpec phi_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayer;
  spec.output_bias = config.head.matrix;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayer;
    layer.form = LayerForm::kParallelShared;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kGeluTanh;
  }
  return spec;
}

DecoderSpec phi_moe_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayer;
  for (DecoderLayerSpec& layer : spec.layers) layer.pre_norm = NormKind::kLayer;
  return spec;
}

HfTensorNames phi_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kPhiNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
