// Qwen 2 and 2.5 (Yang et al., 2024): Llama with biases on q, k and v. Qwen 3 (2025): without them,
// with an RMSNorm on each head of q and k.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec qwen2_spec(const ModelConfig& config);
DecoderSpec qwen3_spec(const ModelConfig& config);

}  // namespace headrace
