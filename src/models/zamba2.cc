#include "models/zamba2.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "models/mamba.h"

namespace headrace {
namespace {

// Of layers with a block.
constexpr auto kZamba2Names = std::to_array<HfTensorName>({
    {"model.layers.{}.linear.weight", "blk.{}.shared_output.weight"},
    {"model.layers.{}.mamba_decoder.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.mamba_decoder.mamba.in_proj.weight", "blk.{}.ssm_in.weight"},
    {"model.layers.{}.mamba_decoder.mamba.in_proj.bias", "blk.{}.ssm_in.bias"},
    {"model.layers.{}.mamba_decoder.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight"},
    {"model.layers.{}.mamba_decoder.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias"},
    {"model.layers.{}.mamba_decoder.mamba.dt_bias", "blk.{}.ssm_dt.bias"},
    {"model.layers.{}.mamba_decoder.mamba.A_log", "blk.{}.ssm_a"},
    {"model.layers.{}.mamba_decoder.mamba.D", "blk.{}.ssm_d"},
    {"model.layers.{}.mamba_decoder.mamba.norm.weight", "blk.{}.ssm_norm.weight"},
    {"model.layers.{}.mamba_decoder.mamba.out_proj.weight", "blk.{}.ssm_out.weight"},
    {"model.layers.{}.mamba_decoder.mamba.out_proj.bias", "blk.{}.ssm_out.bias"},
    {"model.layers.{}.shared_transformer.input_layernorm.weight", "blk.{}.shared.attn_norm.weight"},
    {"model.layers.{}.shared_transformer.self_attn.q_proj.weight", "blk.{}.shared.attn_q.weight"},
    {"model.layers.{}.shared_transformer.self_attn.k_proj.weight", "blk.{}.shared.attn_k.weight"},
    {"model.layers.{}.shared_transformer.self_attn.v_proj.weight", "blk.{}.shared.attn_v.weight"},
    {"model.layers.{}.shared_transformer.self_attn.o_proj.weight",
     "blk.{}.shared.attn_output.weight"},
    {"model.layers.{}.shared_transformer.pre_ff_layernorm.weight", "blk.{}.shared.ffn_norm.weight"},
    {"model.layers.{}.shared_transformer.feed_forward.gate_up_proj.weight",
     "blk.{}.shared.ffn_up.weight"},
    {"model.layers.{}.shared_transformer.feed_forward.gate_up_proj.bias",
     "blk.{}.shared.ffn_up.bias"},
    {"model.layers.{}.shared_transformer.feed_forward.down_proj.weight",
     "blk.{}.shared.ffn_down.weight"},
    {"model.layers.{}.shared_transformer.feed_forward.down_proj.bias",
     "blk.{}.shared.ffn_down.bias"},
});

struct AllNames {
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

// Additions have the number of their use in their names.
AllNames all_names() {
  constexpr const char* kStem = "model.layers.{{}}.shared_transformer";
  constexpr struct {
    const char *hf, *gguf;
  } kAdditions[] = {{"self_attn.linear_q_adapter_list", "attn_q_add"},
                    {"self_attn.linear_k_adapter_list", "attn_k_add"},
                    {"self_attn.linear_v_adapter_list", "attn_v_add"},
                    {"feed_forward.gate_up_proj_adapter_list", "ffn_up_add"}};
  AllNames all{.strings = {}, .names = names_before(kZamba2Names, mamba_hybrid_hf_names())};
  all.strings.reserve(size_t{4} * kSharedUsesMax * std::size(kAdditions));  // names point into it
  for (int32_t use = 0; use < kSharedUsesMax; ++use) {
    for (const auto& [hf, gguf] : kAdditions) {
      for (const int32_t half : {0, 1}) {
        const std::string& from = all.strings.emplace_back(
            fmt::format(fmt::runtime(std::string(kStem) + ".{}.{}.{}.weight"), hf, use, half));
        const std::string& to = all.strings.emplace_back(
            fmt::format("blk.{{}}.shared.{}_{}.{}.weight", gguf, use, half == 0 ? "a" : "b"));
        all.names.push_back({from, to});
      }
    }
  }
  return all;
}

SharedBlockSpec shared_block_of(const ModelConfig& config, const AttentionSpec& attention) {
  const SharedBlockConfig& shared = config.mixers.state_space.shared;
  SharedBlockSpec spec{.attention = attention,
                       .width = config.ffn,
                       .network_bias = config.ffn_bias,
                       .rank = shared.rank,
                       .adds_to_attention = shared.adds_to_attention,
                       .mamba = zamba2_mamba(config),
                       .norm_eps = config.rms_eps};
  spec.attention.input = 2 * int64_t{config.hidden};
  spec.attention.scale = std::sqrt(2.0f / static_cast<float>(config.head_dim));
  return spec;
}

}  // namespace

DecoderSpec zamba2_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  if (!config.mixers.rotates) spec.ropes = {RopeTable()};
  spec.carries_embeddings = true;
  std::vector<int32_t> uses;  // their layers: the first of each block has its tensors
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.feed_forward = NoFeedForwardSpec();
    if (config.mixers.of(i) == LayerMixer::kMamba2) {
      layer.mixer = zamba2_mamba(config);
      return;
    }
    SharedBlockSpec block = shared_block_of(config, layer.attention());
    block.use = static_cast<int32_t>(std::ssize(uses));
    uses.push_back(i);
    block.block = uses[static_cast<size_t>(block.use % config.mixers.state_space.shared.blocks)];
    layer.mixer = block;
    layer.mixer_reads_x = true;
  });
  return spec;
}

HfTensorNames zamba2_hf_names() {
  static const AllNames kAll = all_names();
  return kAll.names;
}

}  // namespace headrace
