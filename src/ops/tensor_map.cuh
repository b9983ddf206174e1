// Descriptions of tensors in device memory for the bulk tensor copy engine. The driver makes them;
// its entry point is looked up at run time, so that nothing links libcuda.
#pragma once

#include <cuda.h>

#include <span>

#include "ops/op.h"

namespace headrace::gpu {

// A tensor of F16, BF16 or F8 whose first dimension is dense, and the box of it that one copy
// moves. Elements outside the tensor arrive as zeros.
struct TensorMapShape {
  DType dtype;
  const void* base;                     // on 16 bytes
  std::span<const cuuint64_t> sizes;    // elements, the dense dimension first
  std::span<const cuuint64_t> strides;  // bytes, of every dimension but the first; of 16
  std::span<const cuuint32_t> box;      // elements
  int32_t chunk;                        // bytes of a swizzled row / 2: 64, 32 or 16
};
CUtensorMap make_tensor_map(const TensorMapShape& shape);

}  // namespace headrace::gpu
