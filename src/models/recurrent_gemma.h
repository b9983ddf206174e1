// RecurrentGemma (Botev et al., 2024): gated linear recurrences, and attention within a window in
// each n-th layer; Gemma's embeddings, norms and networks.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"

namespace headrace {

DecoderSpec recurrent_gemma_spec(const ModelConfig& config);
HfTensorNames recurrent_gemma_hf_names();

}  // namespace headrace
