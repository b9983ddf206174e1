// Of the table of architectures (model_family_table.cc) Gemma 3n and Gemma 4: the numbers that
// their files give under names of their own, what the classes assume, and what differs by layer.
#pragma once

#include <array>

#include "base/json.h"
#include "weights/model_family.h"

namespace headrace {

namespace gemma_fields {
constexpr ConfigField kEps{
    &ModelConfig::rms_eps, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-20, 1,
    Presence::kRequired};
constexpr ConfigField kCap{
    &ModelConfig::logit_soft_cap, "final_logit_softcapping", "final_logit_softcapping", 0, 1e6,
    Presence::kNullable};
constexpr ConfigField kInputWidth{&GemmaConfig::input_width,     "embedding_length_per_layer_input",
                                  "hidden_size_per_layer_input", 0,
                                  kModelLimits.head_dim_max,     Presence::kNullable};
constexpr ConfigField kInputVocab{&GemmaConfig::input_vocab, "", "vocab_size_per_layer_input", 1,
                                  kModelLimits.vocab_max};
constexpr ConfigField kSharing{&GemmaConfig::sharing_layers, "attention.shared_kv_layers",
                               "num_kv_shared_layers", 0, kModelLimits.layers_max};
}  // namespace gemma_fields

inline constexpr std::array kGemma3nFields{
    gemma_fields::kEps,
    gemma_fields::kCap,
    gemma_fields::kInputWidth,
    gemma_fields::kInputVocab,
    gemma_fields::kSharing,
    ConfigField{&GemmaConfig::streams, "altup.num_inputs", "altup_num_inputs", 2, 16},
    ConfigField{&GemmaConfig::active_stream, "altup.active_idx", "altup_active_idx", 0, 15},
    ConfigField{&GemmaConfig::laurel_rank, "", "laurel_rank", 1, kModelLimits.hidden_max}};
inline constexpr std::array kGemma4Fields{
    gemma_fields::kEps,
    gemma_fields::kCap,
    gemma_fields::kInputWidth,
    gemma_fields::kInputVocab,
    gemma_fields::kSharing,
    ConfigField{&GemmaConfig::full_head_dim, "", "global_head_dim", 2, kModelLimits.head_dim_max},
    ConfigField{&GemmaConfig::full_kv_heads, "", "num_global_key_value_heads", 1,
                kModelLimits.heads_max, Presence::kNullable},
    ConfigField{&ExpertConfig::count, "expert_count", "num_experts", 0, kModelLimits.experts_max,
                Presence::kNullable},
    ConfigField{&ExpertConfig::used, "expert_used_count", "top_k_experts", 0,
                kModelLimits.experts_max, Presence::kNullable},
    ConfigField{&ExpertConfig::width, "expert_feed_forward_length", "moe_intermediate_size", 1,
                kModelLimits.ffn_max, Presence::kNullable}};

inline constexpr std::array<std::string_view, 2> kGemma3nClasses{"Gemma3nForCausalLM",
                                                                 "Gemma3nForConditionalGeneration"};
inline constexpr std::array<std::string_view, 2> kGemma4Classes{"Gemma4ForCausalLM",
                                                                "Gemma4ForConditionalGeneration"};
// Gemma 4 12B: layers read nothing of the token.
inline constexpr std::array<std::string_view, 2> kGemma4UnifiedClasses{
    "Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration"};
inline constexpr std::array<std::string_view, 1> kGemmaTanhGelu{"gelu_pytorch_tanh"};

void gemma3n_defaults(ModelConfig& config);
void gemma4_defaults(ModelConfig& config);
void gemma4_unified_defaults(ModelConfig& config);

constexpr bool is_layered_gemma(std::string_view architecture) {
  return architecture == "gemma3n" || architecture == "gemma4";
}
// Whether a file may give the number as a list, one a layer, which the functions below read, or
// those of window_families.h.
constexpr bool is_listed_by_layer(std::string_view architecture, ConfigMember member) {
  if (architecture == "laguna") return member == ConfigMember(&ModelConfig::heads);
  const bool kv_heads = member == ConfigMember(&ModelConfig::kv_heads);
  if (architecture == "step35") {
    return kv_heads || member == ConfigMember(&ModelConfig::heads) ||
           member == ConfigMember(&ModelConfig::rope_theta);
  }
  if (architecture == "mimo2") return kv_heads;
  return is_layered_gemma(architecture) && (kv_heads || member == ConfigMember(&ModelConfig::ffn));
}
// Whether a config.json has it so.
bool has_list_by_layer(const Json& json, std::string_view architecture, const ConfigField& field);
// Gemma 4's files: of text a row sees those before it.
bool sees_both_ways_in_images_alone(const Json& json, std::string_view key);

// After the numbers, the rotation and the windows of a config.json: what differs by layer. Nothing
// of other architectures.
Status read_layered_gemma(const Json& json, const ConfigSource& source, ModelConfig& config);
// The same of a GGUF file.
Status read_gguf_layered_gemma(const GgufFile& file, const ConfigSource& source,
                               ModelConfig& config);

}  // namespace headrace
