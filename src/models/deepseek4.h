// DeepSeek V4 (DeepSeek-AI, 2026): attention of a window, beside which layers attend keys that
// several tokens share; mixtures of which the first go by the token; streams that gates and doubly
// stochastic matrices join.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec deepseek4_spec(const ModelConfig& config);
HfTensorNames deepseek4_hf_names();

}  // namespace headrace
