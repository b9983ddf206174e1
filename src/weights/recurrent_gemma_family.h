// Of the table of architectures (model_family_table.cc) RecurrentGemma: the numbers that its files
// give under names of their own, what the class assumes, and which layers are what.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kRecurrentGemmaFields{
    ConfigField{&ModelConfig::rms_eps, "", "rms_norm_eps", 1e-20, 1, Presence::kRequired},
    ConfigField{&ModelConfig::window, "", "attention_window_size", 1,
                kModelLimits.context_length_max},
    ConfigField{&ModelConfig::logit_soft_cap, "", "logits_soft_cap", 1e-9, 1e6},
    ConfigField{&MixerConfig::conv_taps, "", "conv1d_width", 2, kModelLimits.conv_taps_max},
    ConfigField{&StateSpaceConfig::inner, "", "lru_width", 1, kModelLimits.ffn_max}};
inline constexpr std::array<std::string_view, 1> kRecurrentGemmaClasses{
    "RecurrentGemmaForCausalLM"};

void recurrent_gemma_defaults(ModelConfig& config);

// After the numbers of a config.json: layers, and sizes that follow from others.
Status read_recurrent_gemma(const Json& json, const ConfigSource& source, ModelConfig& config);

}  // namespace headrace
