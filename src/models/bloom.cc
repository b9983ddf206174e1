#include "models/bloom.h"

#include <array>

namespace headrace {
namespace {

constexpr auto kBloomNames = std::to_array<HfTensorName>({
    {"transformer.word_embeddings.weight", "token_embd.weight"},
    {"transformer.word_embeddings_layernorm.weight", "token_embd_norm.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.word_embeddings_layernorm.bias", "token_embd_norm.bias"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.self_attention.query_key_value.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.h.{}.self_attention.query_key_value.bias", "blk.{}.attn_qkv.bias"},
    {"transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.self_attention.dense.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias"},
});

constexpr auto kMptNames = std::to_array<HfTensorName>({
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.norm_f.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.blocks.{}.norm_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.blocks.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.blocks.{}.attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"transformer.blocks.{}.norm_2.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.blocks.{}.ffn.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"transformer.blocks.{}.ffn.down_proj.weight", "blk.{}.ffn_down.weight"},
});

// Layers of LayerNorms of one kind and a network without gates, whose scores lean.
DecoderSpec leaning_decoder(const ModelConfig& config, NormKind norm, Activation activation) {
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes = {RopeTable()};
  spec.output_norm = norm;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = norm;
    if (config.fused.qkv_by_head) layer.attention().qkv = QkvTensors::kFusedByHead;
    layer.attention().alibi_bias_max = config.mixers.alibi_bias_max;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = activation;
  }
  return spec;
}

}  // namespace

DecoderSpec bloom_spec(const ModelConfig& config) {
  DecoderSpec spec = leaning_decoder(config, NormKind::kLayer, Activation::kGeluTanh);
  spec.embedding_norm = NormKind::kLayer;
  return spec;
}

DecoderSpec mpt_spec(const ModelConfig& config) {
  return leaning_decoder(config, NormKind::kLayerNoBias, Activation::kGeluErf);
}

HfTensorNames bloom_hf_names() { return kBloomNames; }
HfTensorNames mpt_hf_names() { return kMptNames; }

}  // namespace headrace
