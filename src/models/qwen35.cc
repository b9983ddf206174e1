#include "models/qwen35.h"

#include <array>
#include <string>
#include <vector>

namespace headrace {
namespace {

constexpr float kQwen35NormOffset = 1;

// Of Qwen3-Next (linear_attn.in_proj_qkvz and _ba) and Qwen3.5, where they differ from the names of
// other families with experts, which follow them. Drafting layers (mtp) are not read.
constexpr auto kQwen35Names = std::to_array<HfTensorName>({
    {"model.norm.weight", "output_norm.weight", kQwen35NormOffset},
    {"mtp.*", ""},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kQwen35NormOffset},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", kQwen35NormOffset},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", kQwen35NormOffset},
    {"model.layers.{}.linear_attn.in_proj_qkvz.weight", "blk.{}.ssm_in.weight"},
    {"model.layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight"},
    {"model.layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight"},
    {"model.layers.{}.linear_attn.in_proj_z.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.linear_attn.in_proj_b.weight", "blk.{}.ssm_beta.weight"},
    {"model.layers.{}.linear_attn.in_proj_a.weight", "blk.{}.ssm_alpha.weight"},
    {"model.layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight"},
    {"model.layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.linear_attn.A_log", "blk.{}.ssm_a"},
    {"model.layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight"},
    {"model.layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
     kQwen35NormOffset},
});

// Alone, or as the text half of a model that also sees, whose other tensors are not read.
struct Qwen35HfNames {
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

Qwen35HfNames qwen35_names() {
  constexpr std::string_view kStem = "model.", kPrefix = "model.language_model.";
  std::vector<HfTensorName> rows(kQwen35Names.begin(), kQwen35Names.end());
  rows.insert(rows.end(), expert_hf_names().begin(), expert_hf_names().end());
  Qwen35HfNames all{.strings = {}, .names = rows};
  all.strings.reserve(rows.size());  // the names point into it
  for (HfTensorName row : rows) {
    if (!row.hf.starts_with(kStem)) continue;
    row.hf =
        all.strings.emplace_back(std::string(kPrefix) + std::string(row.hf.substr(kStem.size())));
    all.names.push_back(row);
  }
  all.names.push_back({"model.visual.*", ""});
  return all;
}

DeltaTensors tensors_of(const MixerConfig& mixers) {
  if (mixers.tensors_by_head) return DeltaTensors::kByHead;
  return mixers.delta.gates_by_head ? DeltaTensors::kGatesByHead : DeltaTensors::kSeparate;
}

DeltaNetSpec delta_net_of(const ModelConfig& config) {
  const MixerConfig& mixers = config.mixers;
  return {.heads = {.key_heads = mixers.key_heads,
                    .value_heads = mixers.value_heads,
                    .key_dim = mixers.key_dim,
                    .value_dim = mixers.value_dim,
                    .tiled = mixers.delta.tiled},
          .taps = mixers.conv_taps,
          .norm_eps = config.rms_eps,
          .tensors = tensors_of(mixers),
          .rate_is_log = mixers.rate_is_log};
}

}  // namespace

DecoderSpec qwen35_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.ffn_norm_name = "post_attention_norm";
    layer.attention().qk_norm = QkNorm::kHead;
    layer.attention().gated = config.mixers.gated_attention;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) {
      mixture->fused = config.mixers.gemma.experts_fused;
      if (mixture->shared_width > 0) mixture->router.shared = SharedExpert::kGated;
    }
    if (config.mixers.of(i) == LayerMixer::kDeltaNet) {
      layer.mixer = delta_net_of(config);
    }
  });
  return spec;
}

HfTensorNames qwen35_hf_names() {
  static const Qwen35HfNames kAll = qwen35_names();
  return kAll.names;
}

}  // namespace headrace
