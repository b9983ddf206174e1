#include "models/opt.h"

#include <array>

namespace headrace {
namespace {

constexpr int32_t kFirstPosition = 2;

constexpr auto kOptNames = std::to_array<HfTensorName>({
    {"model.decoder.embed_tokens.weight", "token_embd.weight"},
    {"model.decoder.embed_positions.weight", "position_embd.weight"},
    {"model.decoder.final_layer_norm.weight", "output_norm.weight"},
    {"model.decoder.final_layer_norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"model.decoder.layers.{}.self_attn_layer_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.decoder.layers.{}.self_attn_layer_norm.bias", "blk.{}.attn_norm.bias"},
    {"model.decoder.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.decoder.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.decoder.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.decoder.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.decoder.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.decoder.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.decoder.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"model.decoder.layers.{}.self_attn.out_proj.bias", "blk.{}.attn_output.bias"},
    {"model.decoder.layers.{}.final_layer_norm.weight", "blk.{}.ffn_norm.weight"},
    {"model.decoder.layers.{}.final_layer_norm.bias", "blk.{}.ffn_norm.bias"},
    {"model.decoder.layers.{}.fc1.weight", "blk.{}.ffn_up.weight"},
    {"model.decoder.layers.{}.fc1.bias", "blk.{}.ffn_up.bias"},
    {"model.decoder.layers.{}.fc2.weight", "blk.{}.ffn_down.weight"},
    {"model.decoder.layers.{}.fc2.bias", "blk.{}.ffn_down.bias"},
});

}  // namespace

DecoderSpec opt_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.positions = {.count = config.context_length, .first = kFirstPosition};
  spec.ropes = {{}};  // rotates nothing
  spec.output_norm = NormKind::kLayer;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayer;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kRelu;
  }
  return spec;
}

HfTensorNames opt_hf_names() { return kOptNames; }

}  // namespace headrace
