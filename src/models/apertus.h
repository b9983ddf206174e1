// Apertus (Swiss AI, 2025): Llama with norms of heads and xIELU, without gates.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"

namespace headrace {

DecoderSpec apertus_spec(const ModelConfig& config);
HfTensorNames apertus_hf_names();

}  // namespace headrace
