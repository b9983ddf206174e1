#include "models/opt.h"

#include <array>
#include <string>
#include <vector>

namespace headrace {
namespace {

constexpr int32_t kFirstPosition = 2;

constexpr auto kOptNames = std::to_array<HfTensorName>({
    {"model.decoder.embed_tokens.weight", "token_embd.weight"},
    {"model.decoder.embed_positions.weight", "position_embd.weight"},
    {"model.decoder.final_layer_norm.weight", "output_norm.weight"},
    {"model.decoder.final_layer_norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"model.decoder.layers.{}.self_attn_layer_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.decoder.layers.{}.self_attn_layer_norm.bias", "blk.{}.attn_norm.bias"},
    {"model.decoder.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.decoder.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.decoder.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.decoder.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.decoder.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.decoder.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.decoder.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"model.decoder.layers.{}.self_attn.out_proj.bias", "blk.{}.attn_output.bias"},
    {"model.decoder.layers.{}.final_layer_norm.weight", "blk.{}.ffn_norm.weight"},
    {"model.decoder.layers.{}.final_layer_norm.bias", "blk.{}.ffn_norm.bias"},
    {"model.decoder.layers.{}.fc1.weight", "blk.{}.ffn_up.weight"},
    {"model.decoder.layers.{}.fc1.bias", "blk.{}.ffn_up.bias"},
    {"model.decoder.layers.{}.fc2.weight", "blk.{}.ffn_down.weight"},
    {"model.decoder.layers.{}.fc2.bias", "blk.{}.ffn_down.bias"},
});

// Those of XGLM where they differ.
constexpr std::string_view kOptStem = "model.decoder.", kXglmStem = "model.";

struct XglmNames {
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

XglmNames xglm_names() {
  XglmNames all;
  all.strings.reserve(kOptNames.size());  // the names point into it
  all.names.push_back({"model.layer_norm.weight", "output_norm.weight"});
  all.names.push_back({"model.layer_norm.bias", "output_norm.bias"});
  all.names.push_back({"model.embed_positions.*", ""});
  for (HfTensorName row : kOptNames) {
    if (row.hf.starts_with(kOptStem)) {
      row.hf = all.strings.emplace_back(std::string(kXglmStem) +
                                        std::string(row.hf.substr(kOptStem.size())));
    }
    all.names.push_back(row);
  }
  return all;
}

constexpr auto kBioGptNames = std::to_array<HfTensorName>({
    {"biogpt.embed_tokens.weight", "token_embd.weight"},
    {"biogpt.embed_positions.weight", "position_embd.weight"},
    {"biogpt.layer_norm.weight", "output_norm.weight"},
    {"biogpt.layer_norm.bias", "output_norm.bias"},
    {"output_projection.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"biogpt.layers.{}.self_attn_layer_norm.weight", "blk.{}.attn_norm.weight"},
    {"biogpt.layers.{}.self_attn_layer_norm.bias", "blk.{}.attn_norm.bias"},
    {"biogpt.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"biogpt.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"biogpt.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"biogpt.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"biogpt.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"biogpt.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"biogpt.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"biogpt.layers.{}.self_attn.out_proj.bias", "blk.{}.attn_output.bias"},
    {"biogpt.layers.{}.final_layer_norm.weight", "blk.{}.ffn_norm.weight"},
    {"biogpt.layers.{}.final_layer_norm.bias", "blk.{}.ffn_norm.bias"},
    {"biogpt.layers.{}.fc1.weight", "blk.{}.ffn_up.weight"},
    {"biogpt.layers.{}.fc1.bias", "blk.{}.ffn_up.bias"},
    {"biogpt.layers.{}.fc2.weight", "blk.{}.ffn_down.weight"},
    {"biogpt.layers.{}.fc2.bias", "blk.{}.ffn_down.bias"},
});

}  // namespace

DecoderSpec opt_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.positions = {.count = config.context_length, .first = kFirstPosition};
  spec.ropes = {{}};  // rotates nothing
  spec.output_norm = NormKind::kLayer;
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.pre_norm = NormKind::kLayer;
    layer.dense().tensors = DenseTensors::kPlain;
    layer.dense().activation = Activation::kRelu;
  }
  return spec;
}

DecoderSpec biogpt_spec(const ModelConfig& config) {
  DecoderSpec spec = opt_spec(config);
  for (DecoderLayerSpec& layer : spec.layers) layer.dense().activation = Activation::kGeluErf;
  return spec;
}

DecoderSpec xglm_spec(const ModelConfig& config) {
  DecoderSpec spec = biogpt_spec(config);
  spec.positions.wave_steps = config.hidden / 2 - 1;
  return spec;
}

HfTensorNames xglm_hf_names() {
  static const XglmNames kAll = xglm_names();
  return kAll.names;
}
HfTensorNames biogpt_hf_names() { return kBioGptNames; }
HfTensorNames opt_hf_names() { return kOptNames; }

}  // namespace headrace
