#include "models/mamba.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kMambaNames = std::to_array<HfTensorName>({
    {"backbone.embeddings.weight", "token_embd.weight"},
    {"backbone.embedding.weight", "token_embd.weight"},
    {"backbone.norm_f.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight"},
    {"backbone.layers.{}.mixer.in_proj.weight", "blk.{}.ssm_in.weight"},
    {"backbone.layers.{}.mixer.in_proj.bias", "blk.{}.ssm_in.bias"},
    {"backbone.layers.{}.mixer.conv1d.weight", "blk.{}.ssm_conv1d.weight"},
    {"backbone.layers.{}.mixer.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    {"backbone.layers.{}.mixer.dt_bias", "blk.{}.ssm_dt.bias"},
    {"backbone.layers.{}.mixer.A_log", "blk.{}.ssm_a"},
    {"backbone.layers.{}.mixer.D", "blk.{}.ssm_d"},
    {"backbone.layers.{}.mixer.norm.weight", "blk.{}.ssm_norm.weight"},
    {"backbone.layers.{}.mixer.x_proj.weight", "blk.{}.ssm_x.weight"},
    {"backbone.layers.{}.mixer.dt_proj.weight", "blk.{}.ssm_dt.weight"},
    {"backbone.layers.{}.mixer.dt_proj.bias", "blk.{}.ssm_dt.bias"},
    {"backbone.layers.{}.mixer.out_proj.weight", "blk.{}.ssm_out.weight"},
    {"backbone.layers.{}.mixer.out_proj.bias", "blk.{}.ssm_out.bias"},
    // Nemotron-H's other layers; what it drafts with is not read.
    {"backbone.layers.{}.mixer.q_proj.weight", "blk.{}.attn_q.weight"},
    {"backbone.layers.{}.mixer.k_proj.weight", "blk.{}.attn_k.weight"},
    {"backbone.layers.{}.mixer.v_proj.weight", "blk.{}.attn_v.weight"},
    {"backbone.layers.{}.mixer.o_proj.weight", "blk.{}.attn_output.weight"},
    {"backbone.layers.{}.mixer.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"backbone.layers.{}.mixer.up_proj.bias", "blk.{}.ffn_up.bias"},
    {"backbone.layers.{}.mixer.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"backbone.layers.{}.mixer.down_proj.bias", "blk.{}.ffn_down.bias"},
    {"backbone.layers.{}.mixer.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"backbone.layers.{}.mixer.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"backbone.layers.{}.mixer.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {"backbone.layers.{}.mixer.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    {"backbone.layers.{}.mixer.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {"backbone.layers.{}.mixer.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
    {"mtp.*", ""},
});

// Before those of Granite's mixtures and of Llama.
constexpr auto kHybridNames = std::to_array<HfTensorName>({
    {"model.final_layernorm.weight", "output_norm.weight"},
    {"model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.feed_forward.gate_proj.bias", "blk.{}.ffn_gate.bias"},
    {"model.layers.{}.feed_forward.up_proj.bias", "blk.{}.ffn_up.bias"},
    {"model.layers.{}.feed_forward.down_proj.bias", "blk.{}.ffn_down.bias"},
    {"model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight"},
    {"model.layers.{}.mamba.in_proj.bias", "blk.{}.ssm_in.bias"},
    {"model.layers.{}.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight"},
    {"model.layers.{}.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    {"model.layers.{}.mamba.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.mamba.A_log", "blk.{}.ssm_a"},
    {"model.layers.{}.mamba.D", "blk.{}.ssm_d"},
    {"model.layers.{}.mamba.norm.weight", "blk.{}.ssm_norm.weight"},
    {"model.layers.{}.mamba.out_proj.weight", "blk.{}.ssm_out.weight"},
    {"model.layers.{}.mamba.out_proj.bias", "blk.{}.ssm_out.bias"},
});

// Before those.
constexpr auto kJambaNames = std::to_array<HfTensorName>({
    {"model.layers.{}.mamba.x_proj.weight", "blk.{}.ssm_x.weight"},
    {"model.layers.{}.mamba.dt_proj.weight", "blk.{}.ssm_dt.weight"},
    {"model.layers.{}.mamba.dt_proj.bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.mamba.dt_layernorm.weight", "blk.{}.ssm_dt_norm.weight"},
    {"model.layers.{}.mamba.b_layernorm.weight", "blk.{}.ssm_b_norm.weight"},
    {"model.layers.{}.mamba.c_layernorm.weight", "blk.{}.ssm_c_norm.weight"},
    {"model.layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.feed_forward.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.feed_forward.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.feed_forward.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
});

GatedNorm norm_of(const StateSpaceConfig& space) {
  if (!space.norm) return GatedNorm::kNone;
  return space.norm_before_gate ? GatedNorm::kBeforeGate : GatedNorm::kBehindGate;
}

Mamba2Spec mamba2_of(const ModelConfig& config) {
  const StateSpaceConfig& space = config.mixers.state_space;
  return {.heads = {.heads = space.heads,
                    .head_dim = space.head_dim,
                    .groups = space.groups,
                    .state_dim = space.state_dim},
          .taps = config.mixers.conv_taps,
          .conv_bias = space.conv_bias,
          .in_bias = space.in_bias,
          .out_bias = space.out_bias,
          .norm = norm_of(space),
          .norm_eps = config.rms_eps,
          .dt_min = space.dt_min,
          .dt_max = space.dt_max,
          .rate_is_log = config.mixers.rate_is_log};
}

MambaSpec mamba_of(const ModelConfig& config) {
  const StateSpaceConfig& space = config.mixers.state_space;
  return {.inner = space.inner,
          .state_dim = space.state_dim,
          .dt_rank = space.dt_rank,
          .taps = config.mixers.conv_taps,
          .conv_bias = space.conv_bias,
          .bias = space.in_bias,
          .norms = space.scan_norms,
          .norm_eps = space.scan_norm_eps,
          .rate_is_log = config.mixers.rate_is_log};
}

// Of models whose queries and keys are not rotated, or that have none.
void rotate_nothing(DecoderSpec& spec) { spec.ropes = {RopeTable()}; }

}  // namespace

DecoderSpec mamba_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.clear();
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (config.mixers.of(i) == LayerMixer::kMamba) {
      layer.mixer = mamba_of(config);
    } else {
      layer.mixer = mamba2_of(config);
    }
    layer.feed_forward = NoFeedForwardSpec();
  });
  return spec;
}

DecoderSpec jamba_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  rotate_nothing(spec);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (config.mixers.of(i) == LayerMixer::kMamba) layer.mixer = mamba_of(config);
  });
  return spec;
}

DecoderSpec mamba_hybrid_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  if (!config.mixers.rotates) rotate_nothing(spec);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (config.mixers.of(i) == LayerMixer::kMamba2) layer.mixer = mamba2_of(config);
    auto* const dense = std::get_if<DenseSpec>(&layer.feed_forward);
    if (dense != nullptr && config.fused.shared_names) dense->name_end = "_shexp";
  });
  return spec;
}

// Where scales of the input cannot be told from those of what is made of it, they are the latter's.
DecoderSpec falcon_h1_spec(const ModelConfig& config) {
  const BranchMultipliers& by = config.mixers.multipliers;
  DecoderSpec spec = uniform_decoder(config);
  Mamba2Spec mamba = mamba2_of(config);
  mamba.scales = {.in = by.ssm_in,
                  .z = by.ssm[0],
                  .x = by.ssm[1],
                  .b = by.ssm[2],
                  .c = by.ssm[3],
                  .dt = by.ssm[4]};
  for (DecoderLayerSpec& layer : spec.layers) {
    AttentionSpec attention = layer.attention();
    attention.scale *= by.attention_in * by.attention_in * by.key;
    layer.mixer = ParallelMixerSpec{.mamba = mamba,
                                    .attention = attention,
                                    .mamba_scale = by.ssm_out,
                                    .attention_scale = by.attention_in * by.attention_out};
    layer.network_input_scale = by.ffn[0];
    layer.network_scale = by.ffn[1] / by.ffn[0];
  }
  return spec;
}

DecoderSpec nemotron_h_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  rotate_nothing(spec);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    const LayerMixer mixer = config.mixers.of(i);
    if (mixer == LayerMixer::kNone) {
      layer.mixer = NoMixerSpec();
      layer.ffn_norm_name = "attn_norm";
      if (auto* const dense = std::get_if<DenseSpec>(&layer.feed_forward)) {
        dense->tensors = DenseTensors::kPlain;
        dense->activation = Activation::kReluSquared;
      }
      if (auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward)) {
        mixture->choice_bias = true;
        mixture->gated = false;
        mixture->activation = Activation::kReluSquared;
      }
      return;
    }
    if (mixer == LayerMixer::kMamba2) layer.mixer = mamba2_of(config);
    layer.feed_forward = NoFeedForwardSpec();
  });
  return spec;
}

Mamba2Spec zamba2_mamba(const ModelConfig& config) {
  constexpr float kNormEps = 1e-5f;
  Mamba2Spec spec = mamba2_of(config);
  spec.norm_eps = kNormEps;
  return spec;
}

HfTensorNames mamba_hf_names() { return kMambaNames; }
HfTensorNames mamba_hybrid_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kHybridNames, granite_moe_hf_names());
  return kAll;
}
HfTensorNames jamba_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kJambaNames, mamba_hybrid_hf_names());
  return kAll;
}

}  // namespace headrace
