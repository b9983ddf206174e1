#include "models/hunyuan.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kHunyuanNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.query_layernorm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.key_layernorm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.mlp.gate.wg.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
});

// Of V3, beside these.
constexpr auto kHyV3Names = std::to_array<HfTensorName>({
    {"model.layers.{}.mlp.router.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b"},
});

}  // namespace

DecoderSpec hunyuan_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(spec,
                     [](AttentionSpec& layer, int32_t) { layer.qk_norm = QkNorm::kHeadBehind; });
  return spec;
}

HfTensorNames hunyuan_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kHunyuanNames, expert_hf_names());
  return kAll;
}
HfTensorNames hy_v3_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kHyV3Names, hunyuan_hf_names());
  return kAll;
}

}  // namespace headrace
