#include "models/olmo2.h"

#include <array>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr auto kNames = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
});

// Of layers of gated DeltaNet.
constexpr auto kOlmoHybridNames = std::to_array<HfTensorName>({
    {"model.layers.{}.attention_layer_norm.weight", "blk.{}.attn_norm.weight"},
    // Of layers that attend the norm behind the mixer, which the library saves as the network's.
    {"model.layers.{}.feedforward_layer_norm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.linear_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.linear_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.linear_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.linear_attn.g_proj.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.linear_attn.a_proj.weight", "blk.{}.ssm_alpha.weight"},
    {"model.layers.{}.linear_attn.b_proj.weight", "blk.{}.ssm_beta.weight"},
    {"model.layers.{}.linear_attn.q_conv1d.weight", "blk.{}.ssm_conv1d_q.weight"},
    {"model.layers.{}.linear_attn.k_conv1d.weight", "blk.{}.ssm_conv1d_k.weight"},
    {"model.layers.{}.linear_attn.v_conv1d.weight", "blk.{}.ssm_conv1d_v.weight"},
    {"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a"},
    {"model.layers.{}.linear_attn.o_norm.weight", "blk.{}.ssm_norm.weight"},
    {"model.layers.{}.linear_attn.o_proj.weight", "blk.{}.ssm_out.weight"},
});

void slide_as_olmo3(DecoderSpec& spec, const ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  slide_all_but_each(spec, config, kPeriod);
  const double theta = config.rope_theta_local > 0 ? config.rope_theta_local : config.rope_theta;
  spec.ropes.push_back(plain_rope_table(theta, config.rope_dim));
  for_each_attention(spec,
                     [](AttentionSpec& layer, int32_t) { layer.rope = layer.window > 0 ? 1 : 0; });
}

}  // namespace

DecoderSpec olmo_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.output_norm = NormKind::kLayerBare;
  for (DecoderLayerSpec& layer : spec.layers) layer.pre_norm = NormKind::kLayerBare;
  return spec;
}

DecoderSpec olmo2_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    layer.pre_norm = NormKind::kNone;
    layer.post_norm = NormKind::kRms;
    layer.attention().qk_norm = QkNorm::kRow;
  });
  if (config.window > 0) slide_as_olmo3(spec, config);
  return spec;
}

// Layers that attend have norms behind their parts, the others before them.
DecoderSpec olmo_hybrid_spec(const ModelConfig& config) {
  constexpr float kDeltaNormEps = 1e-5f;  // whatever a file says
  const MixerConfig& mixers = config.mixers;
  DecoderSpec spec = olmo2_spec(config);
  if (!mixers.rotates) spec.ropes = {{}};
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (mixers.of(i) == LayerMixer::kAttention) return;
    layer.pre_norm = NormKind::kRms;
    layer.post_norm = NormKind::kNone;
    layer.ffn_norm_name = "post_attention_norm";
    layer.mixer = DeltaNetSpec{.heads = {.key_heads = mixers.key_heads,
                                         .value_heads = mixers.value_heads,
                                         .key_dim = mixers.key_dim,
                                         .value_dim = mixers.value_dim},
                               .taps = mixers.conv_taps,
                               .norm_eps = kDeltaNormEps,
                               .tensors = DeltaTensors::kApart,
                               .rate_is_log = mixers.rate_is_log,
                               .beta_scale = mixers.delta.beta_scale};
  });
  return spec;
}

DecoderSpec flex_olmo_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.normalised) full.experts.normalised = false;
  return olmo2_spec(full);
}

HfTensorNames olmo_hybrid_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kOlmoHybridNames, kNames);
  return kAll;
}
HfTensorNames olmo2_hf_names() { return kNames; }
HfTensorNames flex_olmo_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kNames, expert_hf_names());
  return kAll;
}

}  // namespace headrace
