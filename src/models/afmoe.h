// AFMoE (Arcee Trinity, 2025): norms before and behind both parts, norms of heads, gates of heads
// in a tensor of their own, rotation in layers that slide, mixtures of experts chosen by sigmoids
// with a bias, and shared ones.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec afmoe_spec(const ModelConfig& config);
HfTensorNames afmoe_hf_names();

}  // namespace headrace
