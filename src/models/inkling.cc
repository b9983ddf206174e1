#include "models/inkling.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

// As the library calls them.
constexpr auto kInklingNames = std::to_array<HfTensorName>({
    {"model.embed_tokens.embed_norm.weight", "token_embd_norm.weight"},
    {"model.layers.{}.self_attn.r_proj.weight", "blk.{}.attn_rel.weight"},
    {"model.layers.{}.self_attn.rel_logits_proj.proj", "blk.{}.attn_rel_profiles.weight"},
    {"model.layers.{}.self_attn.k_sconv.conv1d.weight", "blk.{}.attn_k_conv.weight"},
    {"model.layers.{}.self_attn.v_sconv.conv1d.weight", "blk.{}.attn_v_conv.weight"},
    {"model.layers.{}.attn_sconv.conv1d.weight", "blk.{}.attn_conv.weight"},
    {"model.layers.{}.mlp_sconv.conv1d.weight", "blk.{}.ffn_conv.weight"},
    {"model.layers.{}.mlp.global_scale", "blk.{}.ffn_scale.weight"},
    {"model.layers.{}.mlp.gate.global_scale", "blk.{}.ffn_scale.weight"},
    {"model.layers.{}.mlp.shared_experts.gate_proj", "blk.{}.ffn_gate_shexps.weight"},
    {"model.layers.{}.mlp.shared_experts.up_proj", "blk.{}.ffn_up_shexps.weight"},
    {"model.layers.{}.mlp.shared_experts.down_proj", "blk.{}.ffn_down_shexps.weight"},
});
// As the hub's own files do.
constexpr auto kHubNames = std::to_array<HfTensorName>({
    {"model.llm.embed.weight", "token_embd.weight"},
    {"model.llm.embed_norm.weight", "token_embd_norm.weight"},
    {"model.llm.norm.weight", "output_norm.weight"},
    {"model.llm.unembed.weight", "output.weight"},
    {"model.llm.layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.llm.layers.{}.mlp_norm.weight", "blk.{}.ffn_norm.weight"},
    {"model.llm.layers.{}.attn.wq_du.weight", "blk.{}.attn_q.weight"},
    {"model.llm.layers.{}.attn.wk_dv.weight", "blk.{}.attn_k.weight"},
    {"model.llm.layers.{}.attn.wv_dv.weight", "blk.{}.attn_v.weight"},
    {"model.llm.layers.{}.attn.wr_du.weight", "blk.{}.attn_rel.weight"},
    {"model.llm.layers.{}.attn.wo_ud.weight", "blk.{}.attn_output.weight"},
    {"model.llm.layers.{}.attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.llm.layers.{}.attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.llm.layers.{}.attn.k_sconv.weight", "blk.{}.attn_k_conv.weight"},
    {"model.llm.layers.{}.attn.v_sconv.weight", "blk.{}.attn_v_conv.weight"},
    {"model.llm.layers.{}.attn.rel_logits_proj.proj", "blk.{}.attn_rel_profiles.weight"},
    {"model.llm.layers.{}.attn_sconv.weight", "blk.{}.attn_conv.weight"},
    {"model.llm.layers.{}.mlp_sconv.weight", "blk.{}.ffn_conv.weight"},
    {"model.llm.layers.{}.mlp.global_scale", "blk.{}.ffn_scale.weight"},
    {"model.llm.layers.{}.mlp.gate.global_scale", "blk.{}.ffn_scale.weight"},
    {"model.llm.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.llm.layers.{}.mlp.gate.bias", "blk.{}.exp_probs_b.bias"},
    {"model.llm.layers.{}.mlp.w13_dn.weight", "blk.{}.ffn_gate.weight", 0, "blk.{}.ffn_up.weight",
     HfForm::kRowsByTurns},
    {"model.llm.layers.{}.mlp.w2_md.weight", "blk.{}.ffn_down.weight"},
    {"model.llm.layers.{}.mlp.experts.w13_weight", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight", HfForm::kRowsByTurns},
    {"model.llm.layers.{}.mlp.experts.w2_weight", "blk.{}.ffn_down_exps.weight"},
    {"model.llm.layers.{}.mlp.shared_experts.shared_w13_weight", "blk.{}.ffn_gate_shexps.weight", 0,
     "blk.{}.ffn_up_shexps.weight", HfForm::kRowsByTurns},
    {"model.llm.layers.{}.mlp.shared_experts.shared_w2_weight", "blk.{}.ffn_down_shexps.weight"},
    // Of layers that draft, and of what sees and hears.
    {"model.mtp.*", ""},
    {"model.visual.*", ""},
    {"model.vision_tower.*", ""},
    {"model.audio.*", ""},
    {"model.audio_tower.*", ""},
});

AttentionSpec attention_of(const ModelConfig& config, const AttentionSpec& uniform) {
  const HeadSizes& sizes = config.mixers.head_sizes;
  const TemperatureConfig& rule = config.mixers.temperature;
  AttentionSpec attention = uniform;
  attention.qk_norm = QkNorm::kHead;
  attention.near = {.taps = config.mixers.conv_taps,
                    .profiles = sizes.profiles.count,
                    .extent = sizes.profiles.extent};
  if (attention.window > 0) {
    attention.heads = sizes.sliding_heads;
    attention.kv_heads = sizes.sliding_kv_heads;
    attention.head_dim = attention.rope_dim = sizes.sliding_head_dim;
    attention.near.extent = attention.window;
  } else {
    attention.temperature = {
        .scale = rule.scale, .step = rule.step, .offset = rule.offset, .smooth = rule.smooth};
  }
  attention.scale = 1.0f / static_cast<float>(attention.head_dim);  // of heads that are normalised
  return attention;
}

// Shared experts are experts that every row takes: their scores are in the sum of those chosen.
void score_shared_experts(const ExpertConfig& experts, MixtureSpec& mixture) {
  mixture.choice_bias = true;
  mixture.scored_shared = experts.shared_count;
  mixture.shared_width = 0;
  mixture.router.shared = SharedExpert::kNone;
  mixture.router.experts += experts.shared_count;
  mixture.router.used += experts.shared_count;
}

}  // namespace

DecoderSpec inkling_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes = {{}};  // rotates nothing
  spec.embedding_norm = NormKind::kRms;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.mixer = attention_of(config, layer.attention());
    layer.branch_taps = config.mixers.conv_taps;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) score_shared_experts(config.experts, *mixture);
  });
  return spec;
}

HfTensorNames inkling_hf_names() {
  static const std::vector<HfTensorName> kAll =
      names_before(names_before(kInklingNames, expert_hf_names()), kHubNames);
  return kAll;
}

}  // namespace headrace
