// RMSNorm of each head of rows by itself, in place.
#pragma once

#include "models/layer_weights.h"
#include "ops/rows/rms_norm.h"

namespace headrace {

// rows [T, heads * d]; weight [d]
inline void norm_heads(OpContext& context, const TensorView& rows, const DeviceVector& weight,
                       float eps, int32_t heads = 1) {
  rms_norm(context, {.x = rows,
                     .residual = {},
                     .weight = weight.data(),
                     .eps = eps,
                     .out = rows,
                     .groups = heads});
}

}  // namespace headrace
