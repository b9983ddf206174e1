#include "models/deepseek4.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

using Kind = SharedKeysConfig::Kind;

// As the hub and the library write them, then as the library has them in memory.
constexpr auto kDeepSeek4Names = std::to_array<HfTensorName>({
    {"model.embed.weight", "token_embd.weight"},
    {"head.weight", "output.weight"},
    {"model.hc_head_fn", "output_hc_fn.weight"},
    {"model.hc_head_base", "output_hc_base.weight"},
    {"model.hc_head_scale", "output_hc_scale.weight"},
    {"model.hc_head.hc_fn", "output_hc_fn.weight"},
    {"model.hc_head.hc_base", "output_hc_base.weight"},
    {"model.hc_head.hc_scale", "output_hc_scale.weight"},
    {"model.layers.{}.hc_attn_fn", "blk.{}.hc_attn_fn.weight"},
    {"model.layers.{}.hc_attn_base", "blk.{}.hc_attn_base.weight"},
    {"model.layers.{}.hc_attn_scale", "blk.{}.hc_attn_scale.weight"},
    {"model.layers.{}.hc_ffn_fn", "blk.{}.hc_ffn_fn.weight"},
    {"model.layers.{}.hc_ffn_base", "blk.{}.hc_ffn_base.weight"},
    {"model.layers.{}.hc_ffn_scale", "blk.{}.hc_ffn_scale.weight"},
    {"model.layers.{}.attn_hc.fn", "blk.{}.hc_attn_fn.weight"},
    {"model.layers.{}.attn_hc.base", "blk.{}.hc_attn_base.weight"},
    {"model.layers.{}.attn_hc.scale", "blk.{}.hc_attn_scale.weight"},
    {"model.layers.{}.ffn_hc.fn", "blk.{}.hc_ffn_fn.weight"},
    {"model.layers.{}.ffn_hc.base", "blk.{}.hc_ffn_base.weight"},
    {"model.layers.{}.ffn_hc.scale", "blk.{}.hc_ffn_scale.weight"},
    {"model.layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.attn.attn_sink", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.attn.wq_a.weight", "blk.{}.attn_q_a.weight"},
    {"model.layers.{}.attn.q_norm.weight", "blk.{}.attn_q_a_norm.weight"},
    {"model.layers.{}.attn.wq_b.weight", "blk.{}.attn_q_b.weight"},
    {"model.layers.{}.attn.wkv.weight", "blk.{}.attn_kv.weight"},
    {"model.layers.{}.attn.kv_norm.weight", "blk.{}.attn_kv_norm.weight"},
    {"model.layers.{}.attn.norm.weight", "blk.{}.attn_kv_norm.weight"},
    {"model.layers.{}.attn.wo_a.weight", "blk.{}.attn_output_a.weight"},
    {"model.layers.{}.attn.wo_b.weight", "blk.{}.attn_output_b.weight"},
    {"model.layers.{}.attn.compressor.ape", "blk.{}.attn_compress_ape.weight"},
    {"model.layers.{}.attn.compressor.norm.weight", "blk.{}.attn_compress_norm.weight"},
    {"model.layers.{}.attn.compressor.wkv.weight", "blk.{}.attn_compress_kv.weight"},
    {"model.layers.{}.attn.compressor.wgate.weight", "blk.{}.attn_compress_gate.weight"},
    {"model.layers.{}.attn.indexer.compressor.ape", "blk.{}.indexer.compress_ape.weight"},
    {"model.layers.{}.attn.indexer.compressor.norm.weight", "blk.{}.indexer.compress_norm.weight"},
    {"model.layers.{}.attn.indexer.compressor.wkv.weight", "blk.{}.indexer.compress_kv.weight"},
    {"model.layers.{}.attn.indexer.compressor.wgate.weight", "blk.{}.indexer.compress_gate.weight"},
    {"model.layers.{}.attn.indexer.weights_proj.weight", "blk.{}.indexer.proj.weight"},
    {"model.layers.{}.attn.indexer.wq_b.weight", "blk.{}.indexer.attn_q_b.weight"},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    {"model.layers.{}.self_attn.q_a_norm.weight", "blk.{}.attn_q_a_norm.weight"},
    {"model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
    {"model.layers.{}.self_attn.kv_proj.weight", "blk.{}.attn_kv.weight"},
    {"model.layers.{}.self_attn.kv_norm.weight", "blk.{}.attn_kv_norm.weight"},
    {"model.layers.{}.self_attn.o_a_proj.weight", "blk.{}.attn_output_a.weight"},
    {"model.layers.{}.self_attn.o_b_proj.weight", "blk.{}.attn_output_b.weight"},
    {"model.layers.{}.self_attn.compressor.position_bias", "blk.{}.attn_compress_ape.weight"},
    {"model.layers.{}.self_attn.compressor.kv_norm.weight", "blk.{}.attn_compress_norm.weight"},
    {"model.layers.{}.self_attn.compressor.kv_proj.weight", "blk.{}.attn_compress_kv.weight"},
    {"model.layers.{}.self_attn.compressor.gate_proj.weight", "blk.{}.attn_compress_gate.weight"},
    {"model.layers.{}.self_attn.compressor.indexer.position_bias",
     "blk.{}.indexer.compress_ape.weight"},
    {"model.layers.{}.self_attn.compressor.indexer.kv_norm.weight",
     "blk.{}.indexer.compress_norm.weight"},
    {"model.layers.{}.self_attn.compressor.indexer.kv_proj.weight",
     "blk.{}.indexer.compress_kv.weight"},
    {"model.layers.{}.self_attn.compressor.indexer.gate_proj.weight",
     "blk.{}.indexer.compress_gate.weight"},
    {"model.layers.{}.self_attn.compressor.indexer.scorer.weights_proj.weight",
     "blk.{}.indexer.proj.weight"},
    {"model.layers.{}.self_attn.compressor.indexer.q_b_proj.weight",
     "blk.{}.indexer.attn_q_b.weight"},
    {"model.layers.{}.ffn.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.ffn.gate.bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.ffn.gate.tid2eid",
     "blk.{}.ffn_gate_tid2eid.weight",
     0,
     {},
     HfForm::kIntegers},
    {"model.layers.{}.mlp.gate.tid2eid",
     "blk.{}.ffn_gate_tid2eid.weight",
     0,
     {},
     HfForm::kIntegers},
    {"model.layers.{}.ffn.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.ffn.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.ffn.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.ffn.shared_experts.w1.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.ffn.shared_experts.w3.weight", "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.ffn.shared_experts.w2.weight", "blk.{}.ffn_down_shexp.weight"},
});

enum Ropes : int32_t { kOfSharing, kOfWindows };  // index into DecoderSpec::ropes

CompressedAttentionSpec attention_of(const ModelConfig& config, const RopeTable& rope, Kind kind) {
  const SharedKeysConfig& keys = config.mixers.latent.shared_keys;
  const LatentConfig& latent = config.mixers.latent;
  CompressedAttentionSpec attention{.heads = config.heads,
                                    .head_dim = config.head_dim,
                                    .query_rank = latent.query_rank,
                                    .rope = kind == Kind::kNone ? kOfWindows : kOfSharing,
                                    .window = config.window,
                                    .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                                    .norm_eps = config.rms_eps,
                                    .groups = keys.groups,
                                    .group_rank = keys.group_rank};
  if (kind == Kind::kNone) return attention;
  attention.compressor = {.rate = kind == Kind::kIndexed ? keys.indexed_rate : keys.all_rate,
                          .overlaps = kind == Kind::kIndexed,
                          .dim = config.head_dim,
                          .norm_eps = config.rms_eps,
                          .inv_freq = rope.inv_freq,
                          .angle_scale = rope.scale,
                          .query_rank = latent.query_rank,
                          .rope = kOfSharing};
  if (kind == Kind::kAll) return attention;
  attention.compressor.index_heads = latent.index_heads;
  attention.compressor.index_dim = latent.index_dim;
  attention.compressor.index_top = latent.index_top;
  return attention;
}

void set_mixture(const ModelConfig& config, const CarriedSpec& carried, bool by_token,
                 MixtureSpec& mixture) {
  const float limit = config.experts.gate_limit;
  mixture.limits = mixture.shared_limits = {limit, limit};
  mixture.choice_bias = !by_token;
  if (!by_token) return;
  mixture.by_token = {.vocab = config.vocab, .column = carried.token_column(config.hidden)};
}

}  // namespace

// A layer that shares keys is two here: the first keeps these, in pages of their own, and does
// nothing.
DecoderSpec deepseek4_spec(const ModelConfig& config) {
  const SharedKeysConfig& keys = config.mixers.latent.shared_keys;
  const GemmaConfig& streams = config.mixers.gemma;
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back(sliding_rope_table(config));
  spec.carried = {.norm_eps = config.rms_eps,
                  .streams = streams.streams,
                  .hyper = true,
                  .hyper_eps = streams.hyper_eps,
                  .hyper_rounds = keys.stream_rounds,
                  .tokens = true};
  const HyperSpec frame{.carried = spec.carried, .magnitude = streams.hyper_magnitude};
  std::vector<DecoderLayerSpec> layers = std::exchange(spec.layers, {});
  for (size_t i = 0; i < layers.size(); ++i) {
    CompressedAttentionSpec attention = attention_of(config, spec.ropes.front(), keys.layers[i]);
    if (attention.compressor.is_here()) {
      attention.compressor.layer = static_cast<int32_t>(spec.layers.size());
      spec.layers.push_back({.mixer = NoMixerSpec{attention.compressor.kept()},
                             .feed_forward = NoFeedForwardSpec(),
                             .block = static_cast<int32_t>(i)});
    }
    DecoderLayerSpec& layer = spec.layers.emplace_back(std::move(layers[i]));
    layer.mixer = std::move(attention);
    layer.frame = frame;
    layer.block = static_cast<int32_t>(i);
    set_mixture(config, spec.carried, keys.networks_by_token[i],
                std::get<MixtureSpec>(layer.feed_forward));
  }
  spec.model.layer_count = static_cast<int32_t>(spec.layers.size());
  spec.carried.layers = spec.model.layer_count;
  return spec;
}

HfTensorNames deepseek4_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kDeepSeek4Names, expert_hf_names());
  return kAll;
}

}  // namespace headrace
