// OLMoE (Muennighoff et al., 2024): a mixture of experts in each layer, norms over whole rows of q
// and k.
#pragma once

#include "models/decoder_spec.h"

namespace headrace {

DecoderSpec olmoe_spec(const ModelConfig& config);

}  // namespace headrace
