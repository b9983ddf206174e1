#include "models/minimax.h"

#include <array>
#include <vector>

namespace headrace {
namespace {

constexpr auto kMiniMaxNames = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"model.layers.{}.self_attn.output_gate.weight", "blk.{}.attn_gate.weight"},
    {"model.layers.{}.self_attn.norm.weight", "blk.{}.attn_norm_2.weight"},
    {"model.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    // Which follow from the numbers of heads and layers.
    {"model.layers.{}.self_attn.slope_rate", ""},
    {"model.layers.{}.self_attn.query_decay", ""},
    {"model.layers.{}.self_attn.key_decay", ""},
    {"model.layers.{}.self_attn.diagonal_decay", ""},
});

}  // namespace

DecoderSpec minimax_spec(const ModelConfig& config) {
  constexpr float kLightningNormEps = 1e-6f;  // whatever a file says
  DecoderSpec spec = uniform_decoder(config);
  const AddedScales& added = config.mixers.added;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    const bool attends = config.mixers.of(i) == LayerMixer::kAttention;
    const float rows = attends ? added.full_rows : added.linear_rows;
    layer.mixer_reads_x = layer.network_reads_x = true;
    layer.mixer_scale = (attends ? added.full_branch : added.linear_branch) / rows;
    layer.network_scale = added.network_branch / added.network_rows;
    layer.frame = NormedRowsSpec{
        .mixer_scale = rows, .network_scale = added.network_rows, .norm_eps = config.rms_eps};
    if (attends) {
      layer.attention().qkv = QkvTensors::kSeparate;  // whatever the others have
      return;
    }
    const double place = i / (config.layers - 1 + 1e-5);
    layer.mixer = LightningSpec{.heads = config.heads,
                                .head_dim = config.head_dim,
                                .slope_factor = static_cast<float>(1 - place + 1e-5),
                                .norm_eps = kLightningNormEps};
  });
  return spec;
}

DecoderSpec minimax_m2_spec(const ModelConfig& config) {
  ModelConfig full = config;
  if (!full.experts.scores) full.experts.scores = ExpertScores::kSigmoid;
  DecoderSpec spec = uniform_decoder(full);
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t) {
    layer.attention().qk_norm = QkNorm::kRow;
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

HfTensorNames minimax_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kMiniMaxNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
