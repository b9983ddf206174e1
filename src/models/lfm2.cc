#include "models/lfm2.h"

#include <array>
#include <vector>

#include "models/rope_table.h"

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

constexpr auto kLfm3Names = std::to_array<HfTensorName>({
    {"model.layers.{}.post_operator_norm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.post_ffn_norm.weight", "blk.{}.post_ffw_norm.weight"},
    {"model.layers.{}.self_attn.gate_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.self_attn.g_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
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

DecoderSpec lfm3_spec(const ModelConfig& config) {
  const MixerConfig& mixers = config.mixers;
  ModelConfig whole = config;
  whole.rope_dim = config.head_dim;
  DecoderSpec spec = lfm2_spec(whole);
  std::vector<double>& frequencies = spec.ropes.front().inv_freq;
  const auto rotated = static_cast<size_t>(mixers.gemma.full_rotated * config.head_dim / 2);
  for (size_t i = rotated; i < frequencies.size(); ++i) frequencies[i] = 0;
  spec.ropes.push_back(sliding_rope_table(whole));
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    if (mixers.post_norms) layer.post_norm = NormKind::kRms;
    auto* const attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr) return;
    attention->gated = attention->gates.apart = attention->gates.of_heads = mixers.gated_attention;
    attention->rope = attention->window > 0 ? 1 : 0;
  });
  return spec;
}

HfTensorNames lfm2_hf_names() { return kLfm2Names; }
HfTensorNames lfm3_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kLfm3Names, kLfm2Names);
  return kAll;
}

}  // namespace headrace
