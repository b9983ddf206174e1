#include "models/gpt_neox.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kGptNeoxNames = std::to_array<HfTensorName>({
    {"gpt_neox.embed_in.weight", "token_embd.weight"},
    {"gpt_neox.final_layer_norm.weight", "output_norm.weight"},
    {"gpt_neox.final_layer_norm.bias", "output_norm.bias"},
    {"embed_out.weight", "output.weight"},
    {"gpt_neox.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"gpt_neox.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    {"gpt_neox.layers.{}.attention.query_key_value.weight", "blk.{}.attn_qkv.weight"},
    {"gpt_neox.layers.{}.attention.query_key_value.bias", "blk.{}.attn_qkv.bias"},
    {"gpt_neox.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight"},
    {"gpt_neox.layers.{}.attention.dense.bias", "blk.{}.attn_output.bias"},
    {"gpt_neox.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"gpt_neox.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    {"gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    {"gpt_neox.layers.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias"},
    {"gpt_neox.layers.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    {"gpt_neox.layers.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias"},
    // Buffers that older versions of the library saved.
    {"gpt_neox.layers.{}.attention.bias", ""},
    {"gpt_neox.layers.{}.attention.masked_bias", ""},
    {"gpt_neox.layers.{}.attention.rotary_emb.inv_freq", ""},
});

constexpr auto kJapaneseNames = std::to_array<HfTensorName>({
    {"gpt_neox_japanese.embed_in.weight", "token_embd.weight"},
    {"gpt_neox_japanese.final_layer_norm.weight", "output_norm.weight"},
    {"gpt_neox_japanese.final_layer_norm.bias", "output_norm.bias"},
    {"embed_out.weight", "output.weight"},
    {"gpt_neox_japanese.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"gpt_neox_japanese.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    {"gpt_neox_japanese.layers.{}.attention.query_key_value.weight", "blk.{}.attn_qkv.weight"},
    {"gpt_neox_japanese.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight"},
    {"gpt_neox_japanese.layers.{}.attention.dense_bias", "blk.{}.attn_output.bias"},
    {"gpt_neox_japanese.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"gpt_neox_japanese.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    {"gpt_neox_japanese.layers.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    {"gpt_neox_japanese.layers.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    {"gpt_neox_japanese.layers.{}.attention.rotary_emb.inv_freq", ""},
});

constexpr auto kPersimmonNames = std::to_array<HfTensorName>({
    {"model.final_layernorm.weight", "output_norm.weight"},
    {"model.final_layernorm.bias", "output_norm.bias"},
    {"model.layers.{}.self_attn.query_key_value.weight", "blk.{}.attn_qkv.weight"},
    {"model.layers.{}.self_attn.query_key_value.bias", "blk.{}.attn_qkv.bias"},
    {"model.layers.{}.self_attn.dense.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.dense.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.self_attn.q_layernorm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.q_layernorm.bias", "blk.{}.attn_q_norm.bias"},
    {"model.layers.{}.self_attn.k_layernorm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.self_attn.k_layernorm.bias", "blk.{}.attn_k_norm.bias"},
    {"model.layers.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias"},
    {"model.layers.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias"},
});

}  // namespace

DecoderSpec gpt_neox_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayer;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.pre_norm = NormKind::kLayer;
    if (config.mixers.parallel) layer.form = LayerForm::kParallel;
    if (config.fused.qkv_by_head) layer.attention().qkv = QkvTensors::kFusedByHead;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kGeluErf;
  });
  return spec;
}

DecoderSpec gpt_neox_japanese_spec(const ModelConfig& config) {
  DecoderSpec spec = gpt_neox_spec(config);
  spec.layers.back().attention().out_bias = true;
  return spec;
}

DecoderSpec persimmon_spec(const ModelConfig& config) {
  DecoderSpec spec = gpt_neox_spec(config);
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.dense().activation = Activation::kReluSquared;
    if (config.mixers.head_norms.value_or(true)) layer.attention().qk_norm = QkNorm::kHeadLayer;
  }
  return spec;
}

HfTensorNames persimmon_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kPersimmonNames, llama_hf_names());
  return kAll;
}
HfTensorNames gpt_neox_japanese_hf_names() { return kJapaneseNames; }
HfTensorNames gpt_neox_hf_names() { return kGptNeoxNames; }

}  // namespace headrace
