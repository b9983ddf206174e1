#include "models/step.h"

#include <array>
#include <cmath>
#include <vector>

#include "models/laguna.h"

namespace headrace {
namespace {

constexpr float kStepNormOffset = 1;

// Of the hub's files, whose experts are stacked; the library's own names are those of others.
constexpr auto kStepNames = std::to_array<HfTensorName>({
    {"model.norm.weight", "output_norm.weight", kStepNormOffset},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kStepNormOffset},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", kStepNormOffset},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", kStepNormOffset},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", kStepNormOffset},
    {"model.layers.{}.self_attn.g_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.moe.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.moe.router_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.moe.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.moe.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.moe.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.share_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.share_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.share_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
});

// The x > 0 of which SiLU is `y` > 0.
double silu_inverse(double y) {
  double low = y, high = y + 1;  // SiLU(x) < x, and SiLU(y + 1) > y
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double x = (low + high) / 2;
    (x / (1 + std::exp(-x)) < y ? low : high) = x;
  }
  return high;
}

// A limit of activated gates is one of gates: where these are positive SiLU rises, and elsewhere
// it is below all limits.
GateLimits limits_of(const std::vector<float>& limits, int32_t layer) {
  const float limit = limits.empty() ? 0.0f : limits[static_cast<size_t>(layer)];
  if (limit == 0) return {};
  return {.gate = static_cast<float>(silu_inverse(double{limit})), .up = limit};
}

}  // namespace

DecoderSpec step_spec(const ModelConfig& config) {
  DecoderSpec spec = laguna_spec(config);
  spec.ropes.front().divisors_in_file = config.head_dim / 2;  // of GGUF files
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.attention().gates.kind = GateKind::kSigmoid;
    const GateLimits whole = limits_of(config.experts.whole_limits, i);
    if (auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward)) {
      mixture->limits = limits_of(config.experts.limits, i);
      mixture->shared_limits = whole;
    } else {
      layer.dense().limits = whole;
    }
  });
  return spec;
}

HfTensorNames step_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kStepNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
