#include "models/granite_swa.h"

#include <algorithm>
#include <array>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr auto kGraniteSwaNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.block_sparse_moe.router.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.block_sparse_moe.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.block_sparse_moe.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
});

}  // namespace

DecoderSpec granite_swa_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  std::vector<double> thetas = {config.rope_theta};  // of spec.ropes
  for_each_attention(spec, [&](AttentionSpec& layer, int32_t i) {
    layer.sinks = true;
    const std::vector<double>& all = config.mixers.rope_thetas;
    const double theta = all.empty() ? config.rope_theta : all[static_cast<size_t>(i)];
    const auto known = std::ranges::find(thetas, theta);
    layer.rope = static_cast<int32_t>(known - thetas.begin());
    if (known != thetas.end()) return;
    ModelConfig of_layer = config;
    of_layer.rope_theta = theta;
    spec.ropes.push_back(theta > 0 ? rope_table(of_layer) : RopeTable());
    thetas.push_back(theta);
  });
  return spec;
}

HfTensorNames granite_swa_hf_names() {
  static const std::vector<HfTensorName> kAll =
      names_before(kGraniteSwaNames, granite_moe_hf_names());
  return kAll;
}

}  // namespace headrace
