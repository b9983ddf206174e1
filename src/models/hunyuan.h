// Hunyuan (Tencent, 2025): Llama, or a mixture of a softmax with a shared expert, whose queries and
// keys are normalised by head behind the rotation.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"

namespace headrace {

DecoderSpec hunyuan_spec(const ModelConfig& config);
HfTensorNames hunyuan_hf_names();
HfTensorNames hy_v3_hf_names();

}  // namespace headrace
