// Command R (Cohere, 2024): parts that read one LayerNorm of x, without a bias, and logits that are
// scaled by a number of the file. Command R7B and A (2025): three of four layers slide, and only
// these rotate.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec cohere_spec(const ModelConfig& config);
DecoderSpec cohere2_spec(const ModelConfig& config);
// The same with mixtures of experts, and norms of either kind.
DecoderSpec cohere2_moe_spec(const ModelConfig& config);

}  // namespace headrace
