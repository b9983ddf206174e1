// Laguna (Poolside, 2026): AFMoE's attention with gates of softplus, one a head or one a component;
// layers may differ in query heads, and those that slide in their rotation; DeepSeek's router and a
// shared expert.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec laguna_spec(const ModelConfig& config);
HfTensorNames laguna_hf_names();

}  // namespace headrace
