#include "models/gemma4.h"

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr auto kGemma4Names = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"score.weight", "cls.output.weight"},
    {"lm_head.weight", ""},  // the embedding once more
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"model.altup_projections.{}.weight", "altup_proj.{}.weight"},
    {"model.altup_unembed_projections.{}.weight", "altup_unembd_proj.{}.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.self_attn.v_norm.weight", ""},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight"},
    {"model.layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight"},
    {"model.layers.{}.pre_feedforward_layernorm_2.weight", "blk.{}.pre_ffw_norm_2.weight"},
    {"model.layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight"},
    {"model.layers.{}.router.proj.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale"},
    {"model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale"},
    {"model.layers.{}.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight"},
    {"model.layers.{}.per_layer_input_gate.weight", "blk.{}.inp_gate.weight"},
    {"model.layers.{}.per_layer_projection.weight", "blk.{}.proj.weight"},
    {"model.layers.{}.post_per_layer_input_norm.weight", "blk.{}.post_norm.weight"},
    {"model.layers.{}.altup.correction_coefs.weight", "blk.{}.altup_correct_coef.weight"},
    {"model.layers.{}.altup.correct_output_scale", "blk.{}.altup_correct_scale.weight"},
    {"model.layers.{}.altup.prediction_coefs.weight", "blk.{}.altup_predict_coef.weight"},
    {"model.layers.{}.altup.modality_router.weight", "blk.{}.altup_router.weight"},
    {"model.layers.{}.altup.router_norm.weight", "blk.{}.altup_router_norm.weight"},
    {"model.layers.{}.laurel.linear_left.weight", "blk.{}.laurel_l.weight"},
    {"model.layers.{}.laurel.linear_right.weight", "blk.{}.laurel_r.weight"},
    {"model.layers.{}.laurel.post_laurel_norm.weight", "blk.{}.laurel_post_norm.weight"},
});

// Alone, or as the text half of a model that also sees and hears, whose other tensors are not read.
struct Gemma4HfNames {
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

Gemma4HfNames all_gemma4_names() {
  constexpr std::string_view kStem = "model.";
  Gemma4HfNames all{.strings = {}, .names = {kGemma4Names.begin(), kGemma4Names.end()}};
  all.strings.reserve(kGemma4Names.size());  // the names point into it
  for (HfTensorName row : kGemma4Names) {
    if (!row.hf.starts_with(kStem)) continue;
    row.hf = all.strings.emplace_back("model.language_model." +
                                      std::string(row.hf.substr(kStem.size())));
    all.names.push_back(row);
  }
  for (const std::string_view other : {"model.vision_tower.*", "model.audio_tower.*",
                                       "model.embed_vision.*", "model.embed_audio.*"}) {
    all.names.push_back({other, ""});
  }
  return all;
}

CarriedSpec carried_of(const ModelConfig& config) {
  const GemmaConfig& gemma = config.mixers.gemma;
  return {.layers = config.layers,
          .input_width = gemma.input_width,
          .input_vocab = gemma.input_vocab,
          .norm_eps = config.rms_eps,
          .streams = gemma.streams,
          .active_stream = gemma.active_stream,
          .streams_stacked = gemma.streams_stacked};
}

// The last layer of its kind that keeps keys; -1: it keeps its own.
int32_t layer_of_shared_keys(const ModelConfig& config, int32_t layer) {
  const int32_t own = config.layers - config.mixers.gemma.sharing_layers;
  if (layer < own) return -1;
  for (int32_t i = own - 1;; --i) {
    CHECK(i >= 0);  // as the configuration was checked
    const bool alike = config.sliding_layers[static_cast<size_t>(i)] ==
                       config.sliding_layers[static_cast<size_t>(layer)];
    if (alike) return i;
  }
}

// What Gemma 3n and 4 share.
DecoderSpec layered_gemma(const ModelConfig& config) {
  ModelConfig dense = config;
  dense.experts = {};
  DecoderSpec spec = uniform_decoder(dense);
  spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  spec.ropes.push_back(plain_rope_table(config.rope_theta_local, config.rope_dim));
  spec.carried = carried_of(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.post_norm = NormKind::kRms;
    layer.dense().activation = Activation::kGeluTanh;
    if (!config.mixers.gemma.widths.empty()) {
      layer.dense().width = config.mixers.gemma.widths[static_cast<size_t>(i)];
    }
    AttentionSpec& attention = layer.attention();
    attention.scale = 1.0f;
    attention.qk_norm = QkNorm::kHead;
    attention.value_norm = true;
    attention.rope = attention.window > 0 ? 1 : 0;
    attention.keys_of = layer_of_shared_keys(config, i);
  });
  return spec;
}

// The first pairs of a head rotate, as if all did; the others stay.
RopeTable proportional_rope_table(const ModelConfig& config) {
  ModelConfig whole = config;
  whole.rope_dim = config.mixers.gemma.full_head_dim;
  RopeTable table = rope_table(whole);
  const auto rotated =
      static_cast<size_t>(config.mixers.gemma.full_rotated * config.mixers.gemma.full_head_dim / 2);
  for (size_t i = rotated; i < table.inv_freq.size(); ++i) table.inv_freq[i] = 0;
  return table;
}

NormedSumSpec network_and_mixture(const ModelConfig& config, const DenseSpec& network) {
  const ExpertConfig& experts = config.experts;
  return {
      .network = network,
      .mixture = {.router = {.experts = experts.count, .used = experts.used, .normalised = true},
                  .width = experts.width,
                  .activation = Activation::kGeluTanh,
                  .fused = config.mixers.gemma.experts_fused,
                  .scaled = true},
      .norm_eps = config.rms_eps};
}

}  // namespace

DecoderSpec gemma3n_spec(const ModelConfig& config) {
  DecoderSpec spec = layered_gemma(config);
  const GemmaConfig& gemma = config.mixers.gemma;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (!gemma.gate_cutoffs.empty()) {
      layer.dense().gate_cutoff = gemma.gate_cutoffs[static_cast<size_t>(i)];
    }
    layer.frame = AltUpSpec{.carried = spec.carried,
                            .layer = i,
                            .laurel_rank = gemma.laurel_rank,
                            .scales_corrected = gemma.scales_corrected};
  });
  return spec;
}

DecoderSpec gemma4_spec(const ModelConfig& config) {
  DecoderSpec spec = layered_gemma(config);
  const GemmaConfig& gemma = config.mixers.gemma;
  spec.ropes.front() = proportional_rope_table(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    if (gemma.layer_scales || gemma.input_width > 0) {
      layer.frame =
          TokenInputSpec{.carried = spec.carried, .layer = i, .scales = gemma.layer_scales};
    }
    if (config.experts.count > 0) {
      layer.feed_forward = network_and_mixture(config, layer.dense());
      layer.network_reads_x = true;
    }
    AttentionSpec& attention = layer.attention();
    if (attention.window > 0) return;
    attention.head_dim = gemma.full_head_dim;
    attention.rope_dim = gemma.full_head_dim;
    attention.values_are_keys = gemma.full_values_are_keys;
    if (gemma.full_kv_heads > 0) attention.kv_heads = gemma.full_kv_heads;
  });
  return spec;
}

HfTensorNames gemma4_hf_names() {
  static const Gemma4HfNames kAll = all_gemma4_names();
  return kAll.names;
}

}  // namespace headrace
