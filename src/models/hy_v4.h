// Hunyuan V4 (Tencent, 2026): GLM-5's attention of chosen keys with sinks and gates of components,
// streams of rows that gates join (hyper-connections), DeepSeek's router, experts whose gates have
// a limit.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec hy_v4_spec(const ModelConfig& config);
HfTensorNames hy_v4_hf_names();

}  // namespace headrace
