// How launches of CUDA kernels name packed weights: a segment as kernels get it, and the choice of
// a kernel by a block type. Included by *_cuda.cu files and their headers alone.
#pragma once

#include "ops/cuda_launch.cuh"
#include "ops/packing/pack_blocks.h"
#include "ops/packing/packed_group.cuh"
#include "ops/packing/packed_weight.h"

namespace headrace::gpu {

// A segment of a packed weight.
struct PackedSegment {
  const std::byte* groups;
  int64_t group_bytes;
  int32_t scales_at;
  int32_t rows;
  int32_t chunks;  // of 32 columns

  __device__ __forceinline__ PackedGroup group(int64_t index) const {
    return {groups + index * group_bytes, scales_at};
  }
};

inline PackedSegment packed_segment(const LinearWeight::Segment& segment, int64_t k) {
  const int64_t chunks = k / 32;
  const int64_t quants = chunks * packed_format_of(segment.dtype).quant_bytes;
  return {.groups = segment.data,
          .group_bytes = segment.group_bytes,
          .scales_at = static_cast<int32_t>(quants),
          .rows = static_cast<int32_t>(segment.row_count),
          .chunks = static_cast<int32_t>(chunks)};
}

// body.operator()<kType>() for the row of HR_BLOCK_TYPES that `dtype` is.
template <int kType = 0, class Body>
void with_block_type(DType dtype, const Body& body) {
  if constexpr (kType < kPackedFormatCount) {
    if (static_cast<int>(dtype) - static_cast<int>(DType::kQ8_0) != kType) {
      return with_block_type<kType + 1>(dtype, body);
    }
    body.template operator()<kType>();
  } else {
    CHECK_MSG(false, "not a block type");
  }
}

// body(ElementType<T>()) for the 16-bit type that `dtype` is.
template <class Body>
void with_half_type(DType dtype, const Body& body) {
  if (dtype == DType::kF16) return body(ElementType<__half>());
  CHECK(dtype == DType::kBF16);
  body(ElementType<__nv_bfloat16>());
}

}  // namespace headrace::gpu
