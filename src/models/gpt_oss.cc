#include "models/gpt_oss.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kGptOssNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias"},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight", HfForm::kTurned},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", 0, "",
     HfForm::kTurned},
    {"model.layers.{}.mlp.experts.gate_up_proj_blocks", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight", HfForm::kMxfp4},
    {"model.layers.{}.mlp.experts.down_proj_blocks", "blk.{}.ffn_down_exps.weight", 0, "",
     HfForm::kMxfp4},
    {"model.layers.{}.mlp.experts.gate_up_proj_scales", ""},  // read with their blocks
    {"model.layers.{}.mlp.experts.down_proj_scales", ""},
    {"model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_gate_exps.bias", 0,
     "blk.{}.ffn_up_exps.bias", HfForm::kByTurns},
    {"model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias"},
});

}  // namespace

DecoderSpec gpt_oss_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  slide_all_but_each(spec, config, 2);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    layer.ffn_norm_name = "post_attention_norm";
    layer.attention().sinks = true;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture == nullptr) return;
    mixture->router_bias = mixture->bias = true;
    mixture->activation = Activation::kClampedSwish;
  });
  return spec;
}

HfTensorNames gpt_oss_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kGptOssNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
