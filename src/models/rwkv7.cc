#include "models/rwkv7.h"

#include <array>

namespace headrace {
namespace {

// The first layer's pre_norm is that of embeddings.
constexpr auto kRwkv7Names = std::to_array<HfTensorName>({
    {"model.embeddings.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.0.pre_norm.weight", "token_embd_norm.weight"},
    {"model.layers.0.pre_norm.bias", "token_embd_norm.bias"},
    {"model.layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.ffn_norm.weight", "blk.{}.attn_norm_2.weight"},
    {"model.layers.{}.attn.g_norm.weight", "blk.{}.time_mix_ln.weight"},
    {"model.layers.{}.attn_norm.bias", "blk.{}.attn_norm.bias"},
    {"model.layers.{}.ffn_norm.bias", "blk.{}.attn_norm_2.bias"},
    {"model.layers.{}.attn.g_norm.bias", "blk.{}.time_mix_ln.bias"},
    {"model.layers.{}.attn.x_r", "blk.{}.time_mix_lerp_r.weight"},
    {"model.layers.{}.attn.x_w", "blk.{}.time_mix_lerp_w.weight"},
    {"model.layers.{}.attn.x_k", "blk.{}.time_mix_lerp_k.weight"},
    {"model.layers.{}.attn.x_v", "blk.{}.time_mix_lerp_v.weight"},
    {"model.layers.{}.attn.x_a", "blk.{}.time_mix_lerp_a.weight"},
    {"model.layers.{}.attn.x_g", "blk.{}.time_mix_lerp_g.weight"},
    {"model.layers.{}.attn.k_k", "blk.{}.time_mix_k_k.weight"},
    {"model.layers.{}.attn.k_a", "blk.{}.time_mix_k_a.weight"},
    {"model.layers.{}.attn.r_k", "blk.{}.time_mix_r_k.weight"},
    {"model.layers.{}.attn.r_proj.weight", "blk.{}.time_mix_receptance.weight"},
    {"model.layers.{}.attn.k_proj.weight", "blk.{}.time_mix_key.weight"},
    {"model.layers.{}.attn.v_proj.weight", "blk.{}.time_mix_value.weight"},
    {"model.layers.{}.attn.o_proj.weight", "blk.{}.time_mix_output.weight"},
    {"model.layers.{}.attn.w_lora.lora.0.weight", "blk.{}.time_mix_w1.weight"},
    {"model.layers.{}.attn.w_lora.lora.2.weight", "blk.{}.time_mix_w2.weight"},
    {"model.layers.{}.attn.w_lora.lora.2.bias", "blk.{}.time_mix_w0.weight"},
    {"model.layers.{}.attn.a_lora.lora.0.weight", "blk.{}.time_mix_a1.weight"},
    {"model.layers.{}.attn.a_lora.lora.2.weight", "blk.{}.time_mix_a2.weight"},
    {"model.layers.{}.attn.a_lora.lora.2.bias", "blk.{}.time_mix_a0.weight"},
    {"model.layers.{}.attn.v_lora.lora.0.weight", "blk.{}.time_mix_v1.weight"},
    {"model.layers.{}.attn.v_lora.lora.2.weight", "blk.{}.time_mix_v2.weight"},
    {"model.layers.{}.attn.v_lora.lora.2.bias", "blk.{}.time_mix_v0.weight"},
    {"model.layers.{}.attn.g_lora.lora.0.weight", "blk.{}.time_mix_g1.weight"},
    {"model.layers.{}.attn.g_lora.lora.2.weight", "blk.{}.time_mix_g2.weight"},
    {"model.layers.{}.ffn.x_k", "blk.{}.channel_mix_lerp_k.weight"},
    {"model.layers.{}.ffn.key.weight", "blk.{}.channel_mix_key.weight"},
    {"model.layers.{}.ffn.value.weight", "blk.{}.channel_mix_value.weight"},
});

}  // namespace

DecoderSpec rwkv7_spec(const ModelConfig& config) {
  const RwkvConfig& rwkv = config.mixers.rwkv;
  ModelConfig halves = config;
  halves.layers = 2 * config.layers;
  DecoderSpec spec = uniform_decoder(halves);
  spec.ropes.clear();
  spec.embedding_norm = spec.output_norm = NormKind::kLayer;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.pre_norm = NormKind::kLayer;
    layer.feed_forward = NoFeedForwardSpec();
    layer.block = i / 2;
    if (i % 2 == 1) {
      layer.mixer = ChannelMixSpec{.width = config.ffn};
      layer.mixer_norm_name = "attn_norm_2";
      return;
    }
    layer.mixer =
        TimeMixSpec{.heads = {.heads = config.hidden / rwkv.head_dim, .head_dim = rwkv.head_dim},
                    .decay_rank = rwkv.decay_rank,
                    .rate_rank = rwkv.rate_rank,
                    .value_rank = rwkv.value_rank,
                    .gate_rank = rwkv.gate_rank,
                    .norm_eps = rwkv.norm_eps,
                    .first = i == 0,
                    .shifts_joined = rwkv.shifts_joined};
  });
  return spec;
}

HfTensorNames rwkv7_hf_names() { return kRwkv7Names; }

}  // namespace headrace
