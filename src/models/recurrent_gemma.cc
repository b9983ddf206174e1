#include "models/recurrent_gemma.h"

#include <array>
#include <cmath>

#include "tensor/half.h"

namespace headrace {
namespace {

constexpr float kOffset = 1;  // norms multiply by 1 + weight

constexpr auto kRecurrentGemmaNames = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.final_norm.weight", "output_norm.weight", kOffset},
    {"lm_head.weight", ""},
    {"model.layers.{}.temporal_pre_norm.weight", "blk.{}.attn_norm.weight", kOffset},
    {"model.layers.{}.channel_pre_norm.weight", "blk.{}.ffn_norm.weight", kOffset},
    {"model.layers.{}.temporal_block.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.temporal_block.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.layers.{}.temporal_block.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.temporal_block.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.layers.{}.temporal_block.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.temporal_block.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.layers.{}.temporal_block.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.temporal_block.o_proj.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.temporal_block.linear_x.weight", "blk.{}.lru_x.weight"},
    {"model.layers.{}.temporal_block.linear_x.bias", "blk.{}.lru_x.bias"},
    {"model.layers.{}.temporal_block.linear_y.weight", "blk.{}.lru_gate.weight"},
    {"model.layers.{}.temporal_block.linear_y.bias", "blk.{}.lru_gate.bias"},
    {"model.layers.{}.temporal_block.conv_1d.weight", "blk.{}.lru_conv1d.weight"},
    {"model.layers.{}.temporal_block.conv_1d.bias", "blk.{}.lru_conv1d.bias"},
    {"model.layers.{}.temporal_block.linear_out.weight", "blk.{}.lru_out.weight"},
    {"model.layers.{}.temporal_block.linear_out.bias", "blk.{}.lru_out.bias"},
    {"model.layers.{}.temporal_block.rg_lru.recurrent_param", "blk.{}.lru_a"},
    {.hf = "model.layers.{}.temporal_block.rg_lru.input_gate_weight",
     .gguf = "blk.{}.lru_in_gate.weight",
     .form = HfForm::kTurned},
    {"model.layers.{}.temporal_block.rg_lru.input_gate_bias", "blk.{}.lru_in_gate.bias"},
    {.hf = "model.layers.{}.temporal_block.rg_lru.recurrent_gate_weight",
     .gguf = "blk.{}.lru_forget_gate.weight",
     .form = HfForm::kTurned},
    {"model.layers.{}.temporal_block.rg_lru.recurrent_gate_bias", "blk.{}.lru_forget_gate.bias"},
    {"model.layers.{}.mlp_block.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp_block.gate_proj.bias", "blk.{}.ffn_gate.bias"},
    {"model.layers.{}.mlp_block.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp_block.up_proj.bias", "blk.{}.ffn_up.bias"},
    {"model.layers.{}.mlp_block.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.mlp_block.down_proj.bias", "blk.{}.ffn_down.bias"},
});

}  // namespace

DecoderSpec recurrent_gemma_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  // The class rounds it, whatever it computes in.
  const float root = std::sqrt(static_cast<float>(config.hidden));
  spec.embedding_scale = bfloat16_to_float(float_to_bfloat16(root));
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.dense().activation = Activation::kGeluTanh;
    if (config.mixers.of(i) == LayerMixer::kAttention) return;
    layer.mixer = RgLruSpec{.channels = config.mixers.state_space.inner,
                            .heads = config.heads,
                            .taps = config.mixers.conv_taps};
  });
  return spec;
}

HfTensorNames recurrent_gemma_hf_names() { return kRecurrentGemmaNames; }

}  // namespace headrace
