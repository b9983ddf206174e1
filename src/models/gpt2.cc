#include "models/gpt2.h"

#include <array>

namespace headrace {
namespace {

// The last two of each are buffers that older versions of the library saved.
constexpr auto kGpt2Names = std::to_array<HfTensorName>({
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", 0, "", HfForm::kTurnedAlone},
    {"transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias"},
    {"transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", 0, "",
     HfForm::kTurnedAlone},
    {"transformer.h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", 0, "", HfForm::kTurnedAlone},
    {"transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", 0, "", HfForm::kTurnedAlone},
    {"transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias"},
    {"transformer.h.{}.attn.bias", ""},
    {"transformer.h.{}.attn.masked_bias", ""},
});

constexpr auto kGptBigCodeNames = std::to_array<HfTensorName>({
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias"},
    {"transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias"},
    {"transformer.h.{}.attn.bias", ""},
    {"transformer.h.{}.attn.masked_bias", ""},
});

constexpr auto kGptNeoNames = std::to_array<HfTensorName>({
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.attn.attention.q_proj.weight", "blk.{}.attn_q.weight"},
    {"transformer.h.{}.attn.attention.k_proj.weight", "blk.{}.attn_k.weight"},
    {"transformer.h.{}.attn.attention.v_proj.weight", "blk.{}.attn_v.weight"},
    {"transformer.h.{}.attn.attention.out_proj.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.attn.attention.out_proj.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias"},
    {"transformer.h.{}.attn.attention.bias", ""},
    {"transformer.h.{}.attn.attention.masked_bias", ""},
});

}  // namespace

DecoderSpec gpt2_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.positions = {.count = config.context_length};
  spec.ropes = {{}};  // rotates nothing
  spec.output_norm = NormKind::kLayer;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayer;
    if (config.fused.qkv_by_head) layer.attention().qkv = QkvTensors::kFusedByHead;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kGeluTanh;
  }
  return spec;
}

HfTensorNames gpt2_hf_names() { return kGpt2Names; }
HfTensorNames gpt_big_code_hf_names() { return kGptBigCodeNames; }
HfTensorNames gpt_neo_hf_names() { return kGptNeoNames; }

}  // namespace headrace
