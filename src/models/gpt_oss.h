// gpt-oss (OpenAI, 2025): every other layer slides, heads have sinks, mixtures have biases in
// router and experts, whose gates are clamped swish. Files of the hub have the experts as MXFP4.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec gpt_oss_spec(const ModelConfig& config);
HfTensorNames gpt_oss_hf_names();

}  // namespace headrace
