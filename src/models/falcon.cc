#include "models/falcon.h"

#include <array>

namespace headrace {
namespace {

constexpr auto kFalconNames = std::to_array<HfTensorName>({
    {"transformer.word_embeddings.weight", "token_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_mlp.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_mlp.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_attn.weight", "blk.{}.attn_norm_2.weight"},
    {"transformer.h.{}.ln_attn.bias", "blk.{}.attn_norm_2.bias"},
    {"transformer.h.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.self_attention.query_key_value.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.h.{}.self_attention.query_key_value.bias", "blk.{}.attn_qkv.bias"},
    {"transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.self_attention.dense.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias"},
    {"transformer.h.{}.self_attention.rotary_emb.inv_freq", ""},
});

}  // namespace

DecoderSpec falcon_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayer;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayer;
    if (config.fused.qkv_by_head) layer.attention().qkv = QkvTensors::kFusedByHead;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kGeluErf;
    if (!config.mixers.parallel) continue;
    layer.form = LayerForm::kParallelShared;
    if (!config.mixers.norms_apart) continue;
    layer.form = LayerForm::kParallel;  // files number the mixer's norm second
    layer.mixer_norm_name = "attn_norm_2";
    layer.ffn_norm_name = "attn_norm";
  }
  return spec;
}

HfTensorNames falcon_hf_names() { return kFalconNames; }

}  // namespace headrace
