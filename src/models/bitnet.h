// BitNet b1.58 (Ma et al., 2025): Llama with squared ReLU in its gated networks, and RMSNorms
// before the products that end attention and networks.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec bitnet_spec(const ModelConfig& config);
HfTensorNames bitnet_hf_names();

}  // namespace headrace
