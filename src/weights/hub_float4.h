// Weights of 4-bit floats (e2m1) of Hugging Face files, columns 2 i and 2 i + 1 a byte:
//   NVFP4  a scale in e4m3 for each 16 columns, one in F32 for the matrix, which multiplies
//          (modelopt: M.weight, M.weight_scale, M.weight_scale_2) or divides (compressed-tensors:
//          M.weight_packed, M.weight_scale, M.weight_global_scale)
//   MXFP4  a power of two for each 32 columns (mxfp4.h)
#pragma once

#include <memory>

#include "weights/hub_matrix.h"

namespace headrace {

// REQUIRES: quants of type U8, and scales
Result<std::unique_ptr<HubMatrix>> open_hub_float4(const HubTensors& tensors);

}  // namespace headrace
