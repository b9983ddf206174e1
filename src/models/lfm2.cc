#include "models/lfm2.h"

#include <array>

namespace headrace {
namespace {

constexpr auto kLfm2Names = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.embedding_norm.weight", "token_embd_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.conv.conv.weight", "blk.{}.shortconv.conv.weight"},
    {"model.layers.{}.conv.in_proj.weight", "blk.{}.shortconv.in_proj.weight"},
    {"model.layers.{}.conv.out_proj.weight", "blk.{}.shortconv.out_proj.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_layernorm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.k_layernorm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.feed_forward.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.feed_forward.expert_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.feed_forward.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.feed_forward.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.feed_forward.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.feed_forward.w1.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.feed_forward.w3.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.feed_forward.w2.weight", "blk.{}.ffn_down.weight"},
});

}  // namespace

DecoderSpec lfm2_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.scores) full.experts.scores = ExpertScores::kSigmoid;
  DecoderSpec spec = uniform_decoder(full);
  spec.output_norm_name = "token_embd_norm";
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.attention().qk_norm = QkNorm::kHead;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
    if (config.mixers.of(i) == LayerMixer::kShortConv) {
      layer.mixer = ShortConvSpec{.taps = config.mixers.conv_taps};
    }
  });
  return spec;
}

HfTensorNames lfm2_hf_names() { return kLfm2Names; }

}  // namespace headrace
