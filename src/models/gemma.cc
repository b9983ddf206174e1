#include "models/gemma.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr float kNormOffset = 1;

constexpr auto kGemmaNames = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight", kNormOffset},
    {"score.weight", "cls.output.weight"},
    {"lm_head.weight", ""},  // the embedding once more
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", kNormOffset},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},
});

constexpr auto kGemma2Names = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight", kNormOffset},
    {"score.weight", "cls.output.weight"},
    {"lm_head.weight", ""},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", kNormOffset},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
     kNormOffset},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", kNormOffset},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight",
     kNormOffset},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},
});

// Gemma 3 alone, or as the text half of a model that also sees, whose other tensors are not read:
// under the prefixes of transformers 4 and 5.
struct PrefixedNames {
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

PrefixedNames gemma3_names() {
  PrefixedNames all{.strings = {}, .names = {kGemma2Names.begin(), kGemma2Names.end()}};
  constexpr std::string_view kStem = "model.";
  all.strings.reserve(2 * kGemma2Names.size());  // the names point into it
  for (const std::string_view prefix : {"language_model.model.", "model.language_model."}) {
    for (HfTensorName row : kGemma2Names) {
      const std::string_view rest = row.hf.starts_with(kStem) ? row.hf.substr(kStem.size()) : "";
      if (rest.empty()) continue;
      row.hf = all.strings.emplace_back(std::string(prefix) + std::string(rest));
      all.names.push_back(row);
    }
  }
  for (const std::string_view other :
       {"language_model.lm_head.weight", "vision_tower.*", "model.vision_tower.*",
        "multi_modal_projector.*", "model.multi_modal_projector.*"}) {
    all.names.push_back({other, ""});
  }
  return all;
}

// The scale of scores where a file does not say it: heads share the hidden size in the 27B models,
// of `wide_layers` layers.
float score_scale(const ModelConfig& config, int32_t wide_layers) {
  if (config.attention_scale > 0) return config.attention_scale;
  const int32_t size =
      config.layers == wide_layers ? config.hidden / config.heads : config.head_dim;
  return 1.0f / std::sqrt(static_cast<float>(size));
}

}  // namespace

DecoderSpec gemma_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  for (DecoderLayerSpec& layer : spec.layers) layer.dense().activation = Activation::kGeluTanh;
  return spec;
}

DecoderSpec gemma2_spec(const ModelConfig& config) {
  constexpr int32_t kWindow = 4096;  // of the published models; the first GGUF files do not say it
  constexpr int32_t kLayersOf27b = 46;
  ModelConfig full = config;
  if (full.window == 0 && full.sliding_layers.empty()) full.window = kWindow;
  DecoderSpec spec = gemma_spec(full);
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.post_norm = NormKind::kRms;
    layer.attention().scale = score_scale(config, kLayersOf27b);
  });
  slide_all_but_each(spec, full, 2);
  return spec;
}

DecoderSpec gemma3_spec(const ModelConfig& config) {
  constexpr double kLocalTheta = 10000;  // GGUF files do not say it
  constexpr int32_t kLayersOf27b = 62;
  DecoderSpec spec = gemma_spec(config);
  const double theta = config.rope_theta_local > 0 ? config.rope_theta_local : kLocalTheta;
  spec.ropes.push_back(plain_rope_table(theta, config.rope_dim));
  slide_all_but_each(spec, config, 6);
  for (DecoderLayerSpec& layer : spec.layers) layer.post_norm = NormKind::kRms;
  for_each_attention(spec, [&](AttentionSpec& layer, int32_t) {
    layer.qk_norm = QkNorm::kHead;
    layer.scale = score_scale(config, kLayersOf27b);
    layer.rope = layer.window > 0 ? 1 : 0;
  });
  return spec;
}

DecoderSpec vault_gemma_spec(const ModelConfig& config) {
  DecoderSpec spec = gemma2_spec(config);
  for (DecoderLayerSpec& layer : spec.layers) layer.post_norm = NormKind::kNone;
  return spec;
}

HfTensorNames gemma_hf_names() { return kGemmaNames; }
HfTensorNames gemma2_hf_names() { return kGemma2Names; }
HfTensorNames gemma3_hf_names() {
  static const PrefixedNames kAll = gemma3_names();
  return kAll.names;
}

}  // namespace headrace
