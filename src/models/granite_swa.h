// Granite with windows (2026): layers that slide but each fourth, a sink of each head, and a base
// of the rotation for each layer, or none.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec granite_swa_spec(const ModelConfig& config);
HfTensorNames granite_swa_hf_names();

}  // namespace headrace
