// Qwen3-Next and Qwen3.5 (Qwen team, 2025 and 2026): gated DeltaNet in three of four layers, gated
// attention in the others, dense networks or mixtures of experts.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec qwen35_spec(const ModelConfig& config);
HfTensorNames qwen35_hf_names();

}  // namespace headrace
