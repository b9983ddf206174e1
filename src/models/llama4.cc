#include "models/llama4.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {
namespace {

constexpr auto kLlama4Experts = std::to_array<HfTensorName>({
    {"model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.feed_forward.router.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight", HfForm::kTurnedHalves},
    {"model.layers.{}.feed_forward.experts.down_proj",
     "blk.{}.ffn_down_exps.weight",
     0,
     {},
     HfForm::kTurnedHalves},
    {"model.layers.{}.feed_forward.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.feed_forward.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.feed_forward.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
});

struct TextHalfNames {
  std::vector<std::string> strings;
  std::vector<HfTensorName> names;
};

// Alone, or as the text half of a model that also sees, whose other tensors are not read: under the
// prefixes of transformers 4 and 5.
TextHalfNames names_of_text_half(std::vector<HfTensorName> rows) {
  constexpr std::string_view kStem = "model.";
  TextHalfNames all{.strings = {}, .names = rows};
  all.strings.reserve(3 * rows.size());  // the names point into it
  const auto add = [&](HfTensorName row, std::string name) {
    row.hf = all.strings.emplace_back(std::move(name));
    all.names.push_back(row);
  };
  for (const HfTensorName& row : rows) {
    const std::string hf(row.hf);
    add(row, "language_model." + hf);
    if (row.hf.starts_with(kStem)) add(row, "model.language_model." + hf.substr(kStem.size()));
  }
  for (const std::string_view other :
       {"vision_model.*", "model.vision_model.*", "vision_tower.*", "model.vision_tower.*",
        "multi_modal_projector.*", "model.multi_modal_projector.*"}) {
    all.names.push_back({other, ""});
  }
  return all;
}

}  // namespace

QueryTemperature temperature_of(const ModelConfig& config) {
  const TemperatureConfig& rule = config.mixers.temperature;
  return {.scale = rule.scale, .step = rule.step, .offset = rule.offset};
}

DecoderSpec llama4_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back({});  // rotates nothing
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    AttentionSpec& attention = layer.attention();
    const bool rotates = config.rope_layers[static_cast<size_t>(i)];
    attention.rope = rotates ? 0 : 1;
    // A chunk that holds all of a text is none.
    if (attention.window >= config.context_length) attention.window = 0;
    attention.chunk = attention.window;
    if (rotates && config.mixers.head_norms.value_or(true)) {
      attention.qk_norm = QkNorm::kHead;
      attention.bare_qk_norm = true;
    }
    if (!rotates) {
      attention.temperature = temperature_of(config);
      attention.qk_rows_interleaved = false;
    }
    if (auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward)) {
      mixture->scales_input = true;
    }
  });
  return spec;
}

DecoderSpec ministral3_spec(const ModelConfig& config) {
  DecoderSpec spec = uniform_decoder(config);
  for_each_attention(
      spec, [&](AttentionSpec& layer, int32_t) { layer.temperature = temperature_of(config); });
  return spec;
}

HfTensorNames llama4_hf_names() {
  static const TextHalfNames kAll =
      names_of_text_half(names_before(kLlama4Experts, llama_hf_names()));
  return kAll.names;
}

HfTensorNames ministral3_hf_names() {
  static const TextHalfNames kAll = names_of_text_half(names_before({}, llama_hf_names()));
  return kAll.names;
}

}  // namespace headrace
