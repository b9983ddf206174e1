// StarCoder 2 (Lozhkov et al., 2024): LayerNorm, a plain GELU feed-forward, biases everywhere, in
// the smaller models a sliding window.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec starcoder2_spec(const ModelConfig& config);
HfTensorNames starcoder2_hf_names();

}  // namespace headrace
