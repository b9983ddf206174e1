// Of the table of architectures (model_family_table.cc) Llama 4 and Ministral 3, whose queries grow
// with their positions: the numbers that their files give under names of their own, what the
// classes assume, and which layers are what.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array kLlama4Fields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
                Presence::kRequired},
    ConfigField{&ExpertConfig::width, "expert_feed_forward_length", "", 1, kModelLimits.ffn_max},
    ConfigField{&ExpertConfig::count, "expert_count", "num_local_experts", 1,
                kModelLimits.experts_max},
    ConfigField{&ExpertConfig::used, "expert_used_count", "num_experts_per_tok", 1,
                kModelLimits.experts_max}};
inline constexpr std::array kMinistral3Fields{
    ConfigField{&ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
                Presence::kRequired}};

inline constexpr std::array<std::string_view, 2> kLlama4Classes{"Llama4ForCausalLM",
                                                                "Llama4ForConditionalGeneration"};
// The second one's text part may be a Mistral, which is one whose queries do not grow.
inline constexpr std::array<std::string_view, 2> kMinistral3Classes{
    "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"};

void llama4_defaults(ModelConfig& config);
void ministral3_defaults(ModelConfig& config);
// Mistral's class of models that also see wraps text models of two families. The class whose
// numbers `text`, its text_config or null, has; of other classes `hf_class`.
std::string class_of_text(const std::string& hf_class, const Json& config, const Json* text);

// After the numbers, the rotation and the windows of a config.json. Nothing of other architectures.
Status read_tuned_queries(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file.
Status read_gguf_tuned_queries(const GgufFile& file, ModelConfig& config);

}  // namespace headrace
