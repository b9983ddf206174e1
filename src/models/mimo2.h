// MiMo V2 Flash (Xiaomi, 2025): DeepSeek's router without shared experts; layers that slide have
// more key heads than the others, a base of the rotation of their own, and sinks; values are
// smaller than keys, and multiplied by one number.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec mimo2_spec(const ModelConfig& config);
HfTensorNames mimo2_hf_names();

}  // namespace headrace
