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

constexpr float kNormOffset = 1;

// The hub's names, and those that the library gives the same tensors.
constexpr auto kMiniMaxM3Names = std::to_array<HfTensorName>({
    {"model.norm.weight", "output_norm.weight", kNormOffset},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kNormOffset},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.index_q_proj.weight", "blk.{}.indexer.attn_q.weight"},
    {"model.layers.{}.self_attn.index_k_proj.weight", "blk.{}.indexer.attn_k.weight"},
    {"model.layers.{}.self_attn.index_q_norm.weight", "blk.{}.indexer.q_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.index_k_norm.weight", "blk.{}.indexer.k_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.indexer.q_proj.weight", "blk.{}.indexer.attn_q.weight"},
    {"model.layers.{}.self_attn.indexer.k_proj.weight", "blk.{}.indexer.attn_k.weight"},
    {"model.layers.{}.self_attn.indexer.q_norm.weight", "blk.{}.indexer.q_norm.weight",
     kNormOffset},
    {"model.layers.{}.self_attn.indexer.k_norm.weight", "blk.{}.indexer.k_norm.weight",
     kNormOffset},
    {"model.layers.{}.block_sparse_moe.shared_experts.gate_proj.weight",
     "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.block_sparse_moe.shared_experts.up_proj.weight",
     "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.block_sparse_moe.shared_experts.down_proj.weight",
     "blk.{}.ffn_down_shexp.weight"},
    {"model.layers.{}.mlp.shared_experts.gate_up_proj.weight", "blk.{}.ffn_gate_shexp.weight", 0,
     "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_gate.weight", 0,
     "blk.{}.ffn_up.weight"},
    {"model.mtp.*", ""},
});

BlockIndexSpec block_index_of(const ModelConfig& config) {
  const BlockIndexConfig& index = config.mixers.minimax.block_index;
  return {.heads = index.heads,
          .dim = index.dim,
          .rule = {.tokens = index.tokens, .top = index.top, .local = index.local},
          .norm_eps = config.rms_eps};
}

}  // namespace

DecoderSpec minimax_spec(const ModelConfig& config) {
  constexpr float kLightningNormEps = 1e-6f;  // whatever a file says
  DecoderSpec spec = uniform_decoder(config);
  const AddedScales& added = config.mixers.minimax.added;
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

DecoderSpec minimax_m3_spec(const ModelConfig& config) {
  const ClampedSwishShape swish{.slope = config.experts.gate_slope,
                                .bound = config.experts.gate_limit};
  const std::vector<bool>& indexed = config.mixers.minimax.block_index.layers;
  DecoderSpec spec = uniform_decoder(config);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.attention().qk_norm = QkNorm::kHead;
    if (!indexed.empty() && indexed[static_cast<size_t>(i)]) {
      layer.attention().index = block_index_of(config);
    }
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture == nullptr) {
      layer.dense().activation = Activation::kClampedSwish;
      layer.dense().swish = swish;
      return;
    }
    mixture->choice_bias = true;
    mixture->activation = Activation::kClampedSwish;
    mixture->swish = swish;
  });
  return spec;
}

HfTensorNames minimax_m3_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kMiniMaxM3Names, expert_hf_names());
  return kAll;
}

HfTensorNames minimax_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kMiniMaxNames, llama_hf_names());
  return kAll;
}

}  // namespace headrace
