// MiniMax-M2 (2025): norms over whole rows of q and k, rotation of a part of each head, mixtures of
// experts chosen by sigmoids with a bias.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec minimax_m2_spec(const ModelConfig& config);

}  // namespace headrace
