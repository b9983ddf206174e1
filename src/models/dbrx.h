// DBRX (Databricks, 2024): LayerNorms without biases, queries, keys and values that are clamped, a
// mixture in each layer.
#pragma once

#include "models/decoder_spec.h"
#include "weights/hf_names.h"

namespace headrace {

DecoderSpec dbrx_spec(const ModelConfig& config);
HfTensorNames dbrx_hf_names();

}  // namespace headrace
