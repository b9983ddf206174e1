#include "models/hy_v4.h"

#include <array>
#include <vector>

#include "models/deepseek.h"

namespace headrace {
namespace {

constexpr auto kHyV4Names = std::to_array<HfTensorName>({
    {"model.hc_pre.hc_head.hc_head_fn", "output_hc_fn.weight"},
    {"model.hc_pre.hc_head.hc_head_base", "output_hc_base.weight"},
    {"model.hc_pre.hc_head.hc_head_scale", "output_hc_scale.weight"},
    {"model.layers.{}.hc_pre.hc_attn_layer.hc_fn", "blk.{}.hc_attn_fn.weight"},
    {"model.layers.{}.hc_pre.hc_attn_layer.hc_base", "blk.{}.hc_attn_base.weight"},
    {"model.layers.{}.hc_pre.hc_attn_layer.hc_scale", "blk.{}.hc_attn_scale.weight"},
    {"model.layers.{}.hc_pre.hc_mlp_layer.hc_fn", "blk.{}.hc_ffn_fn.weight"},
    {"model.layers.{}.hc_pre.hc_mlp_layer.hc_base", "blk.{}.hc_ffn_base.weight"},
    {"model.layers.{}.hc_pre.hc_mlp_layer.hc_scale", "blk.{}.hc_ffn_scale.weight"},
    {"model.layers.{}.self_attn.learnable_sink_param", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.self_attn.linear_gate.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.mlp.linear_gate.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.experts.{}.linear_gate.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.mlp.shared_experts.linear_gate.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.mtp_layers.*", ""},
});

}  // namespace

DecoderSpec hy_v4_spec(const ModelConfig& config) {
  const GemmaConfig& streams = config.mixers.gemma;
  const float limit = config.experts.gate_limit;
  DecoderSpec spec = deepseek_spec(config);
  spec.carried = {.layers = config.layers,
                  .norm_eps = config.rms_eps,
                  .streams = streams.streams,
                  .hyper = true,
                  .hyper_eps = streams.hyper_eps};
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    auto& attention = std::get<LatentAttentionSpec>(layer.mixer);
    attention.gate_dim = attention.value_dim;
    attention.sinks = true;
    attention.index.rotated_last = true;
    attention.index.norm_eps = config.rms_eps;
    if (attention.index.carried) spec.carried.behind = attention.index.top;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->limits = {limit, limit};
  });
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.frame = HyperSpec{.carried = spec.carried, .magnitude = streams.hyper_magnitude};
  }
  return spec;
}

HfTensorNames hy_v4_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kHyV4Names, deepseek_hf_names());
  return kAll;
}

}  // namespace headrace
