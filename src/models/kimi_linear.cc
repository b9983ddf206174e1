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

// Where they differ from both.
constexpr auto kLing3Names = std::to_array<HfTensorName>({
    {"model.word_embeddings.weight", "token_embd.weight"},
    {"model.layers.{}.attention.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.attention.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.attention.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.attention.q_conv1d.weight", "blk.{}.ssm_conv1d_q.weight"},
    {"model.layers.{}.attention.k_conv1d.weight", "blk.{}.ssm_conv1d_k.weight"},
    {"model.layers.{}.attention.v_conv1d.weight", "blk.{}.ssm_conv1d_v.weight"},
    {"model.layers.{}.attention.f_proj.weight", "blk.{}.ssm_f_a.weight"},
    {"model.layers.{}.attention.b_proj.weight", "blk.{}.ssm_beta.weight"},
    {"model.layers.{}.attention.A_log", "blk.{}.ssm_a"},
    {"model.layers.{}.attention.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.attention.g_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.attention.o_norm.weight", "blk.{}.ssm_norm.weight"},
    {"model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.attention.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    {"model.layers.{}.attention.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight"},
    {"model.layers.{}.attention.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
    {"model.layers.{}.attention.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    {"model.layers.{}.attention.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    {"model.layers.{}.attention.kv_b_proj.weight", "blk.{}.attn_kv_b.weight"},
    {"model.layers.{}.mlp.gate.expert_bias", "blk.{}.exp_probs_b.bias"},
});

KimiDeltaSpec kimi_delta_of(const ModelConfig& config) {
  const MixerConfig& mixers = config.mixers;
  return {.heads = {.count = mixers.key_heads, .dim = mixers.key_dim},
          .taps = mixers.conv_taps,
          .norm_eps = config.rms_eps,
          .rate_is_log = mixers.rate_is_log};
}

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
    layer.mixer = kimi_delta_of(config);
  });
  return spec;
}

DecoderSpec ling3_spec(const ModelConfig& config) {
  DecoderSpec spec = deepseek_spec(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (config.mixers.of(i) == LayerMixer::kAttention) {
      std::get<LatentAttentionSpec>(layer.mixer).gate_dim = 1;
      return;
    }
    KimiDeltaSpec delta = kimi_delta_of(config);
    delta.low_rank_gates = false;
    delta.decay_floor = config.mixers.delta.decay_floor;
    layer.mixer = delta;
  });
  return spec;
}

HfTensorNames ling3_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kLing3Names, expert_hf_names());
  return kAll;
}

HfTensorNames kimi_linear_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kKimiNames, deepseek_hf_names());
  return kAll;
}

}  // namespace headrace
