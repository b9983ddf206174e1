#include "models/laguna.h"

#include <array>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr auto kLagunaNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.g_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.mlp.experts.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
});

}  // namespace

DecoderSpec laguna_spec(const ModelConfig& config) {
  const HeadSizes& sizes = config.mixers.head_sizes;
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back(sliding_rope_table(config));
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    AttentionSpec& attention = layer.attention();
    if (!sizes.queries.empty()) attention.heads = sizes.queries[static_cast<size_t>(i)];
    attention.qk_norm = QkNorm::kHead;
    attention.gated = attention.gates.apart = true;
    attention.gates.of_heads = sizes.gates_of_heads;
    attention.gates.kind = GateKind::kSoftplus;
    attention.rope = attention.window > 0 ? 1 : 0;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

HfTensorNames laguna_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kLagunaNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
