// FP8 weights (e4m3, without infinities) with a scale for a whole matrix, a row or a block of it:
// DeepSeek's and Qwen's files, compressed-tensors' float-quantized.
#pragma once

#include <memory>

#include "weights/hub_matrix.h"

namespace headrace {

// REQUIRES: quants of type F8_E4M3, and scales
Result<std::unique_ptr<HubMatrix>> open_hub_float8(const HubTensors& tensors,
                                                   const HubQuantisation& quantisation);

}  // namespace headrace
