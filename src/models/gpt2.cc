#include "models/gpt2.h"

#include <array>
#include <cmath>
#include <vector>

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

// Of the first GPT; the hub's own file has no stem before its names.
constexpr auto kGptNames = std::to_array<HfTensorName>({
    {"transformer.tokens_embed.weight", "token_embd.weight"},
    {"transformer.positions_embed.weight", "position_embd.weight"},
});
constexpr std::string_view kStem = "transformer.";

// Sines and cosines of positions in place of learned ones.
constexpr auto kCtrlNames = std::to_array<HfTensorName>({
    {"transformer.w.weight", "token_embd.weight"},
    {"transformer.layernorm.weight", "output_norm.weight"},
    {"transformer.layernorm.bias", "output_norm.bias"},
    {"transformer.pos_encoding", ""},
    {"lm_head.weight", "output.weight"},
    {"lm_head.bias", "output.bias"},
    {"score.weight", "cls.output.weight"},
    {"classifier.weight", "cls.output.weight"},
    {"transformer.h.{}.layernorm1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.layernorm1.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.layernorm2.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.layernorm2.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.multi_head_attention.Wq.weight", "blk.{}.attn_q.weight"},
    {"transformer.h.{}.multi_head_attention.Wq.bias", "blk.{}.attn_q.bias"},
    {"transformer.h.{}.multi_head_attention.Wk.weight", "blk.{}.attn_k.weight"},
    {"transformer.h.{}.multi_head_attention.Wk.bias", "blk.{}.attn_k.bias"},
    {"transformer.h.{}.multi_head_attention.Wv.weight", "blk.{}.attn_v.weight"},
    {"transformer.h.{}.multi_head_attention.Wv.bias", "blk.{}.attn_v.bias"},
    {"transformer.h.{}.multi_head_attention.dense.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.multi_head_attention.dense.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.ffn.0.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.ffn.0.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.ffn.2.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.ffn.2.bias", "blk.{}.ffn_down.bias"},
});

}  // namespace

DecoderSpec gpt_spec(const ModelConfig& config) {
  DecoderSpec spec = gpt2_spec(config);
  spec.output_norm = NormKind::kNone;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.mixer_reads_x = layer.network_reads_x = true;
    layer.frame =
        NormedRowsSpec{.norm = NormKind::kLayer, .norm_eps = config.rms_eps, .behind = true};
  }
  return spec;
}

DecoderSpec ctrl_spec(const ModelConfig& config) {
  DecoderSpec spec = gpt2_spec(config);
  spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  spec.positions.wave_steps = config.hidden / 2;
  spec.output_bias = config.head.matrix;
  for (DecoderLayerSpec& layer : spec.layers) layer.dense().activation = Activation::kRelu;
  return spec;
}

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

HfTensorNames gpt_hf_names() {
  static const std::vector<HfTensorName> kAll = [] {
    std::vector<HfTensorName> all = names_before(kGptNames, kGpt2Names);
    const size_t count = all.size();
    for (size_t i = 0; i < count; ++i) {
      HfTensorName row = all[i];
      if (!row.hf.starts_with(kStem)) continue;
      row.hf.remove_prefix(kStem.size());
      all.push_back(row);
    }
    return all;
  }();
  return kAll;
}
HfTensorNames ctrl_hf_names() { return kCtrlNames; }
HfTensorNames gpt2_hf_names() { return kGpt2Names; }
HfTensorNames gpt_big_code_hf_names() { return kGptBigCodeNames; }
HfTensorNames gpt_neo_hf_names() { return kGptNeoNames; }

}  // namespace headrace
