// Tensor maps of the paged cache and of the queries. The driver makes them; its entry point is
// looked up at run time, so that nothing links libcuda.
#include "ops/attention_tensor_map.cuh"

namespace headrace::gpu {
namespace {

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

CUtensorMapSwizzle swizzle_of(int32_t chunk) {
  if (chunk == 64) return CU_TENSOR_MAP_SWIZZLE_128B;
  return chunk == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
}

// `strides`: bytes, of every dimension but the first.
template <int kRank>
CUtensorMap encode(DType dtype, const void* base, const cuuint64_t (&sizes)[kRank],
                   const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                   int32_t chunk) {
  static const Encode encode_tiled = find_encode();
  cuuint32_t steps[kRank];
  for (cuuint32_t& step : steps) step = 1;
  CUtensorMap map;
  const CUresult result = encode_tiled(
      &map,
      dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      kRank, const_cast<void*>(base), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle_of(chunk), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK_MSG(result == CUDA_SUCCESS, "the driver refused a tensor map");
  return map;
}

}  // namespace

CUtensorMap page_map(const KvLayerView& kv, const std::byte* part, int32_t chunk) {
  const auto dim = static_cast<cuuint64_t>(kv.head_dim);
  const auto wide = static_cast<cuuint64_t>(chunk);
  const auto heads = static_cast<cuuint64_t>(kv.kv_heads);
  // The pool's size is not known here; block tables hold blocks of the pool alone.
  constexpr cuuint64_t kBlocksMax = 1ull << 31;
  return encode<5>(kv.dtype, part, {wide, 8, dim / wide, 2 * heads, kBlocksMax},
                   {dim * 2, wide * 2, dim * 16, static_cast<cuuint64_t>(kv.block_stride)},
                   {static_cast<cuuint32_t>(chunk), 8, static_cast<cuuint32_t>(dim / wide), 2, 1},
                   chunk);
}

CUtensorMap query_map(const ConstTensorView& q, int32_t head_dim, int32_t group, int32_t positions,
                      int32_t chunk) {
  const auto dim = static_cast<cuuint64_t>(head_dim);
  const auto wide = static_cast<cuuint64_t>(chunk);
  return encode<4>(q.dtype, q.data,
                   {wide, static_cast<cuuint64_t>(q.columns()) / dim,
                    static_cast<cuuint64_t>(q.rows()), dim / wide},
                   {dim * 2, static_cast<cuuint64_t>(q.row_stride), wide * 2},
                   {static_cast<cuuint32_t>(chunk), static_cast<cuuint32_t>(group),
                    static_cast<cuuint32_t>(positions), 1},
                   chunk);
}

}  // namespace headrace::gpu
