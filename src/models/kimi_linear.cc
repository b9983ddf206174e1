#include "models/kimi_linear.h"

#include <array>
#include <vector>

#include "models/deepseek.h"

namespace headrace {
namespace {

// Where they differ from DeepSeek's, which follow them.
constexpr auto kKimiNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.q_conv1d.weight", "blk.{}.ssm_conv1d_q.weight"},
    {"model.layers.{}.self_attn.k_conv1d.weight", "blk.{}.ssm_conv1d_k.weight"},
    {"model.layers.{}.self_attn.v_conv1d.weight", "blk.{}.ssm_conv1d_v.weight"},
    {"model.layers.{}.self_attn.f_a_proj.weight", "blk.{}.ssm_f_a.weight"},
    {"model.layers.{}.self_attn.f_b_proj.weight", "blk.{}.ssm_f_b.weight"},
    {"model.layers.{}.self_attn.b_proj.weight", "blk.{}.ssm_beta.weight"},
    {"model.layers.{}.self_attn.A_log", "blk.{}.ssm_a"},
    {"model.layers.{}.self_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.self_attn.g_a_proj.weight", "blk.{}.ssm_g_a.weight"},
    {"model.layers.{}.self_attn.g_b_proj.weight", "blk.{}.ssm_g_b.weight"},
    {"model.layers.{}.self_attn.o_norm.weight", "blk.{}.ssm_norm.weight"},
    {"model.layers.{}.block_sparse_moe.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.block_sparse_moe.shared_experts.gate_proj.weight",
     "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.block_sparse_moe.shared_experts.up_proj.weight",
     "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.block_sparse_moe.shared_experts.down_proj.weight",
     "blk.{}.ffn_down_shexp.weight"},
});

}  // namespace

DecoderSpec kimi_linear_spec(const ModelConfig& config) {
  DecoderSpec spec = deepseek_spec(config);
  const MixerConfig& mixers = config.mixers;
  // A rotation by nothing: what would rotate is a part of keys that all heads share.
  for (double& frequency : spec.ropes.front().inv_freq) frequency = 0;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (mixers.of(i) == LayerMixer::kAttention) {
      std::get<LatentAttentionSpec>(layer.mixer).rows_interleaved = false;
      return;
    }
    layer.mixer = KimiDeltaSpec{.heads = {.count = mixers.key_heads, .dim = mixers.key_dim},
                                .taps = mixers.conv_taps,
                                .norm_eps = config.rms_eps,
                                .rate_is_log = mixers.rate_is_log};
  });
  return spec;
}

HfTensorNames kimi_linear_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kKimiNames, deepseek_hf_names());
  return kAll;
}

}  // namespace headrace
