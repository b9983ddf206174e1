// Seed-OSS (ByteDance, 2025): Llama with biases of q, k and v. GGUF files name the network's norm
// by its place behind the attention.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec seed_oss_spec(const ModelConfig& config);
HfTensorNames seed_oss_hf_names();

}  // namespace headrace
