// CWM (Meta, 2025): Llama of which three of four layers slide, the first not.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec cwm_spec(const ModelConfig& config);

}  // namespace headrace
