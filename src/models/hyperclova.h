// HyperCLOVA X (NAVER, 2025): Granite with norms behind its branches.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"

namespace headrace {

DecoderSpec hyperclova_spec(const ModelConfig& config);
HfTensorNames hyperclova_hf_names();

}  // namespace headrace
