// RWKV-7 (Peng et al., 2025): no layer attends. A layer of a file is two of the decoder, time mix
// and channel mix, as both keep something of a sequence; embeddings are normalised.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"
#include "weights/model_config.h"

namespace headrace {

DecoderSpec rwkv7_spec(const ModelConfig& config);
HfTensorNames rwkv7_hf_names();

}  // namespace headrace
