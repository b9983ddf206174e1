// Of the table of architectures (model_family_table.cc) GLM-4 and its kin: GLM-4.5, Solar Open, and
// the text halves of those that see.
#pragma once

#include <array>

#include "weights/model_family.h"

namespace headrace {

inline constexpr std::array<std::string_view, 1> kGlmClasses{"GlmForCausalLM"};
inline constexpr std::array<std::string_view, 1> kGlm4Classes{"Glm4ForCausalLM"};
inline constexpr std::array<std::string_view, 1> kGlm4vClasses{"Glm4vForConditionalGeneration"};
inline constexpr std::array<std::string_view, 1> kGlm4MoeClasses{"Glm4MoeForCausalLM"};
inline constexpr std::array<std::string_view, 1> kGlm4vMoeClasses{
    "Glm4vMoeForConditionalGeneration"};
inline constexpr std::array<std::string_view, 1> kSolarOpenClasses{"SolarOpenForCausalLM"};

void glm_defaults(ModelConfig& config);
void glm4_moe_defaults(ModelConfig& config);
void solar_open_defaults(ModelConfig& config);
void glm4v_defaults(ModelConfig& config);
void glm4v_moe_defaults(ModelConfig& config);

}  // namespace headrace
