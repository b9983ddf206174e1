#include "models/gpt_j.h"

#include <array>

namespace headrace {
namespace {

constexpr auto kGptJNames = std::to_array<HfTensorName>({
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"lm_head.bias", "output.bias"},
    {"score.weight", "cls.output.weight"},
    {"transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"transformer.h.{}.attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"transformer.h.{}.attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"transformer.h.{}.attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.h.{}.attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.mlp.fc_in.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.fc_in.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.fc_out.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.fc_out.bias", "blk.{}.ffn_down.bias"},
    // Buffers that older versions of the library saved.
    {"transformer.h.{}.attn.bias", ""},
    {"transformer.h.{}.attn.masked_bias", ""},
    {"transformer.h.{}.attn.causal_mask", ""},
    {"transformer.h.{}.attn.embed_positions", ""},
});

}  // namespace

DecoderSpec gpt_j_spec(const ModelConfig& config) {
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

DecoderSpec code_gen_spec(const ModelConfig& config) {
  DecoderSpec spec = gpt_j_spec(config);
  for (DecoderLayerSpec& layer : spec.layers) layer.attention().qkv = QkvTensors::kFusedByQuarter;
  return spec;
}

HfTensorNames gpt_j_hf_names() { return kGptJNames; }

}  // namespace headrace
