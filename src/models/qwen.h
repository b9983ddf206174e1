// Qwen 3 (Yang et al., 2025): Llama with an RMSNorm on each head of q and k, and with mixtures of
// experts; Qwen 2's mixtures (2024), which have a gated shared expert.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec qwen3_spec(const ModelConfig& config);
DecoderSpec qwen2_moe_spec(const ModelConfig& config);

}  // namespace headrace
