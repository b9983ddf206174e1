// GLM-4 (Zhipu AI, 2024 and 2025): interleaved rotation of half of a head, gate and up in one
// matrix; GLM-4-0414 with norms after each part too; GLM-4.5 and its kin (Solar Open) with
// DeepSeek's router and rows in halves. The text halves of GLM-4.1V and 4.5V are these.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec glm_spec(const ModelConfig& config);
DecoderSpec glm4_spec(const ModelConfig& config);
DecoderSpec glm4_moe_spec(const ModelConfig& config);
HfTensorNames glm4_hf_names();
HfTensorNames glm4_moe_hf_names();
HfTensorNames sarvam_moe_hf_names();

}  // namespace headrace
