// Zamba 2 (Zyphra, 2024): Mamba-2, and in some layers before it a block of attention and network
// whose weights these layers share (parts/shared_block_mixer.h).
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec zamba2_spec(const ModelConfig& config);
HfTensorNames zamba2_hf_names();

}  // namespace headrace
