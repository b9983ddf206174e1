// Llama (Touvron et al., 2023) and its kin: RMSNorm before each part, rotary positions, grouped
// query attention, gated SiLU feed-forward, tied or separate output matrix.
#pragma once

#include "models/decoder_spec.h"

namespace headrace {

DecoderSpec llama_spec(const ModelConfig& config);

}  // namespace headrace
