#include "ops/tensor_map.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

namespace headrace::gpu {
namespace {

constexpr size_t kRankMax = 5;

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &result);
  CHECK_MSG(error == cudaSuccess && result == cudaDriverEntryPointSuccess,
            "this driver has no tensor maps (CUDA 12 has)");
  return reinterpret_cast<Encode>(function);
}

CUtensorMapDataType type_of(DType dtype) {
  if (dtype == DType::kF8) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  return dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

CUtensorMapSwizzle swizzle_of(int32_t chunk) {
  if (chunk == 64) return CU_TENSOR_MAP_SWIZZLE_128B;
  return chunk == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
}

}  // namespace

CUtensorMap make_tensor_map(const TensorMapShape& shape) {
  static const Encode encode_tiled = find_encode();
  const size_t rank = shape.sizes.size();
  CHECK(rank <= kRankMax && shape.strides.size() + 1 == rank && shape.box.size() == rank);
  std::array<cuuint32_t, kRankMax> steps;
  std::fill(steps.begin(), steps.end(), 1);
  CUtensorMap map;
  const CUresult result = encode_tiled(
      &map, type_of(shape.dtype), static_cast<cuuint32_t>(rank), const_cast<void*>(shape.base),
      shape.sizes.data(), shape.strides.data(), shape.box.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(shape.chunk), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK_MSG(result == CUDA_SUCCESS, "the driver refused a tensor map");
  return map;
}

}  // namespace headrace::gpu
