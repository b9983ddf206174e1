// Tensor maps of the paged cache and of the queries.
#include "ops/attention/attention_tensor_map.cuh"

#include "ops/tensor_map.cuh"

namespace headrace::gpu {
namespace {

// `strides`: bytes, of every dimension but the first.
template <int kRank>
CUtensorMap encode(DType dtype, const void* base, const cuuint64_t (&sizes)[kRank],
                   const cuuint64_t (&strides)[kRank - 1], const cuuint32_t (&box)[kRank],
                   int32_t chunk) {
  return make_tensor_map({dtype, base, sizes, strides, box, chunk});
}

}  // namespace

CUtensorMap page_map(const KvLayerView& kv, const std::byte* part, int32_t head_dim,
                     int32_t chunk) {
  const auto dim = static_cast<cuuint64_t>(head_dim);
  const auto wide = static_cast<cuuint64_t>(chunk);
  const auto heads = static_cast<cuuint64_t>(kv.kv_heads);
  // The pool's size is not known here; block tables hold blocks of the pool alone.
  constexpr cuuint64_t kBlocksMax = 1ull << 31;
  return encode<5>(kv_element(kv.k_format), part, {wide, 8, dim / wide, 2 * heads, kBlocksMax},
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
