#include "models/apertus.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kApertusNames = std::to_array<HfTensorName>({
    {"model.layers.{}.attention_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlp.act_fn.alpha_p", "blk.{}.ffn_act_alpha_p"},
    {"model.layers.{}.mlp.act_fn.alpha_n", "blk.{}.ffn_act_alpha_n"},
    {"model.layers.{}.mlp.act_fn.beta", "blk.{}.ffn_act_beta"},
    {"model.layers.{}.mlp.act_fn.eps", "blk.{}.ffn_act_eps"},
});

}  // namespace

DecoderSpec apertus_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.attention().qk_norm = QkNorm::kHead;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kXielu;
  }
  return spec;
}

HfTensorNames apertus_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kApertusNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
