#include "models/dbrx.h"

#include <array>

namespace headrace {
namespace {

constexpr auto kDbrxNames = std::to_array<HfTensorName>({
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.norm_f.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.blocks.{}.norm_attn_norm.norm_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.blocks.{}.norm_attn_norm.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.blocks.{}.norm_attn_norm.attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"transformer.blocks.{}.norm_attn_norm.norm_2.weight", "blk.{}.attn_output_norm.weight"},
    {"transformer.blocks.{}.ffn.router.layer.weight", "blk.{}.ffn_gate_inp.weight"},
    {"transformer.blocks.{}.ffn.experts.mlp.w1", "blk.{}.ffn_gate_exps.weight", 0, "",
     HfForm::kFlat},
    {"transformer.blocks.{}.ffn.experts.mlp.v1", "blk.{}.ffn_up_exps.weight", 0, "", HfForm::kFlat},
    {"transformer.blocks.{}.ffn.experts.mlp.w2", "blk.{}.ffn_down_exps.weight", 0, "",
     HfForm::kFlatTurned},
});

}  // namespace

DecoderSpec dbrx_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayerNoBias;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.pre_norm = NormKind::kLayerNoBias;
    layer.ffn_norm_name = "attn_output_norm";
    layer.attention().qkv_clamp = config.mixers.head_sizes.qkv_clamp;
  });
  return spec;
}

HfTensorNames dbrx_hf_names() { return kDbrxNames; }

}  // namespace headrace
