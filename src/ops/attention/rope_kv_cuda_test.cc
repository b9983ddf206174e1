// rope_kv on CUDA against the CPU reference: rotated rows and every byte of the cache.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/rope_kv.h"
#include "ops/cuda_fixture.h"

namespace headrace::rope_kv_cuda_test {
namespace {

struct Case {
  DType dtype;
  int32_t query_heads, kv_heads, head_dim, rope_dim;
  RopeStyle style;
  bool norm;
  std::optional<KvFormat> kept = {};  // the cache's format, else `dtype`
  int32_t v_dim = head_dim;

  std::string name() const {
    return std::string(dtype_name(dtype)) + " q" + std::to_string(query_heads) + " kv" +
           std::to_string(kv_heads) + " d" + std::to_string(head_dim) + "/" +
           std::to_string(v_dim) + " rope" + std::to_string(rope_dim) + (norm ? " norm" : "") +
           (kept.has_value() ? " format " + std::to_string(static_cast<int>(*kept)) : "");
  }
};

constexpr int64_t kBlocks = 5;
constexpr int32_t kBlockTokens = 16;

KvLayerView cache_view(const Case& c, std::byte* memory, int64_t gap_bytes) {
  KvLayerView kv =
      alike_kv(c.kept.value_or(kv_format(c.dtype)), KeyLayout::kRows, c.kv_heads, c.head_dim);
  kv.v_dim = c.v_dim;
  kv.base = memory;
  kv.block_stride = layer_part_bytes(kv) + gap_bytes;
  return kv;
}

// Rows, rotary tables and norms of a case, and what the CPU's reference makes of them. It computes
// in f32 and its cache is f32 too.
struct Reference {
  Reference(const Case& c, int64_t tokens, Rng& rng)
      : columns(int64_t{c.query_heads + c.kv_heads} * c.head_dim + int64_t{c.kv_heads} * c.v_dim),
        half(c.rope_dim / 2),
        qkv(rounded_floats(rng, c.dtype, tokens * columns)),
        cos(random_floats(rng, tokens * half)),
        sin(random_floats(rng, tokens * half)),
        q_norm(random_floats(rng, c.head_dim)),
        k_norm(random_floats(rng, c.head_dim)),
        expected(qkv) {
    for (int64_t t = 0; t < tokens; ++t) slots.push_back((t * 7 + 3) % (kBlocks * kBlockTokens));
    Case exact = c;
    exact.dtype = DType::kF32;
    if (!c.kept.has_value() || !mixes_keys(*c.kept)) exact.kept.reset();
    kv = cache_view(exact, nullptr, 64);
    cache.resize(static_cast<size_t>(kv.block_stride * kBlocks));
    kv.base = cache.data();
    args = {.qkv = host_view(expected, tokens, columns),
            .cos = host_view(cos, tokens, half),
            .sin = host_view(sin, tokens, half),
            .style = c.style,
            .query_heads = c.query_heads,
            .kv = kv,
            .slots = slots,
            .q_norm = c.norm ? q_norm.data() : nullptr,
            .k_norm = c.norm ? k_norm.data() : nullptr,
            .norm_eps = 1e-6f};
    TestDevice cpu = TestDevice::cpu(1);
    OpContext context = cpu.context();
    rope_kv_kernels().all().back().run(context, args);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  const int64_t columns, half;
  std::vector<float> qkv;       // [tokens, columns]
  std::vector<float> cos, sin;  // [tokens, half]
  const std::vector<float> q_norm, k_norm;
  std::vector<int64_t> slots;    // [tokens]
  std::vector<float> expected;   // [tokens, columns]
  std::vector<std::byte> cache;  // of `kv`
  KvLayerView kv;
  RopeKvArgs args;  // on the host
};

// The key and value of a token and head, in a format of columns: as the CPU makes them of `keys`
// [kv heads, d] and of `values`, alike.
void expect_columns(const KvLayerView& kv, int64_t slot, int32_t head, const float* keys,
                    const float* values) {
  KvLayerView one = alike_kv(kv.k_format, KeyLayout::kRows, 1, kv.k_dim);
  std::vector<std::byte> block(static_cast<size_t>(2 * one.v_offset));
  one.base = block.data();
  std::vector<float> value;
  for (int32_t d = 0; d < kv.k_dim; ++d) {
    value.push_back(values[head * kv.k_dim + d]);
  }
  store_key(one, 0, 0, keys + int64_t{head} * kv.k_dim);
  store_value(one, 0, 0, value.data());
  for (int32_t d = 0; d < kv.k_dim; ++d) {
    ASSERT_EQ(*key_at(kv, slot, head, d), *key_at(one, 0, 0, d));
    ASSERT_EQ(*value_at(kv, slot, head, d), *value_at(one, 0, 0, d));
    ASSERT_EQ(load_key(kv, slot, head, d), load_key(one, 0, 0, d));
    ASSERT_EQ(load_value(kv, slot, head, d), load_value(one, 0, 0, d));
  }
}

// What a kernel left in the cache of the case's type: the reference's keys and values, and between
// blocks and in free slots nothing. What is kept of fewer bits is that of the keys in `qkv`
// [tokens, columns], bit for bit.
void expect_cache(const Case& c, KvLayerView kv, std::vector<std::byte> host,
                  const Reference& reference, const std::vector<float>& qkv) {
  kv.base = host.data();
  for (size_t t = 0; t < reference.slots.size(); ++t) {
    const int64_t slot = reference.slots[t];
    const float* keys = qkv.data() + t * static_cast<size_t>(reference.columns) +
                        static_cast<ptrdiff_t>(c.query_heads) * c.head_dim;
    for (int32_t head = 0; head < c.kv_heads; ++head) {
      if (c.kept.has_value()) {
        ASSERT_NO_FATAL_FAILURE(
            expect_columns(kv, slot, head, keys, keys + c.kv_heads * c.head_dim));
        continue;
      }
      for (int32_t d = 0; d < c.head_dim; ++d) {
        const float key = load_kv(DType::kF32, key_at(reference.kv, slot, head, d));
        ASSERT_NEAR(load_kv(c.dtype, key_at(kv, slot, head, d)), key,
                    unit_of(c.dtype) * (std::abs(key) + 8));
      }
      for (int32_t d = 0; d < c.v_dim; ++d) {
        const float value = load_kv(DType::kF32, value_at(reference.kv, slot, head, d));
        ASSERT_EQ(load_kv(c.dtype, value_at(kv, slot, head, d)), value);
      }
    }
  }
  int64_t poisoned = 0;
  for (const std::byte b : host) poisoned += b == std::byte{0xff} ? 1 : 0;
  const int64_t written = static_cast<int64_t>(reference.slots.size()) *
                          (k_part_bytes(kv) + v_part_bytes(kv)) / kBlockTokens;
  EXPECT_GE(poisoned, static_cast<int64_t>(host.size()) - written);
}

void run_case(TestDevice& cuda, const Case& c, int64_t tokens) {
  SCOPED_TRACE(c.name());
  Rng rng(static_cast<uint64_t>(c.head_dim * 7 + tokens));
  Reference reference(c, tokens, rng);
  const CudaArray<float> q_norm(cuda, reference.q_norm), k_norm(cuda, reference.k_norm);
  const CudaArray<int64_t> slots(cuda, reference.slots);
  const int64_t gap = reference.half > 0 ? 0 : 1;  // some memory, whatever they are
  CudaMatrix cos(cuda, DType::kF32, tokens, reference.half, gap, &reference.cos);
  CudaMatrix sin(cuda, DType::kF32, tokens, reference.half, gap, &reference.sin);
  for (const auto& kernel : rope_kv_kernels().all()) {
    CudaMatrix qkv(cuda, c.dtype, tokens, reference.columns, 8, &reference.qkv);
    KvLayerView kv = cache_view(c, nullptr, 64);
    const CudaArray<std::byte> cache(
        cuda,
        std::vector<std::byte>(static_cast<size_t>(kv.block_stride * kBlocks), std::byte{0xff}));
    kv.base = cache.data();
    RopeKvArgs args = reference.args;
    args.qkv = qkv.view();
    args.cos = cos.view();
    args.sin = sin.view();
    args.kv = kv;
    args.slots = slots.span();
    args.q_norm = c.norm ? q_norm.data() : nullptr;
    args.k_norm = c.norm ? k_norm.data() : nullptr;
    if (!kernel.supports(cuda.device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    // Rotation cancels: an absolute bound of the size of the operands.
    const std::vector<float> rotated = qkv.read();
    expect_near(rotated, reference.expected, unit_of(c.dtype), 8 * unit_of(c.dtype));
    expect_cache(c, kv, cache.read(), reference, rotated);
  }
}

TEST(RopeKvCuda, AgreesWithTheReference) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool norm : {false, true}) {
      for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
        for (const int64_t tokens : {1, 2, 40}) {
          for (const std::optional<KvFormat> kept : {std::optional<KvFormat>(),
                                                     {KvFormat::kFp8},
                                                     {KvFormat::kInt8Head},
                                                     {KvFormat::kInt4Head}}) {
            run_case(cuda, {dtype, 9, 3, 64, 64, style, norm, kept}, tokens);
            run_case(cuda, {dtype, 4, 1, 256, 256, style, norm, kept}, tokens);
            run_case(cuda, {dtype, 2, 2, 80, 32, style, norm, kept}, tokens);
            run_case(cuda, {dtype, 3, 1, 18, 18, style, norm, kept}, tokens);
            run_case(cuda, {dtype, 2, 1, 100, 100, style, norm, kept}, tokens);
            run_case(cuda, {dtype, 2, 1, 96, 64, style, norm, kept}, tokens);
            run_case(cuda, {dtype, 32, 8, 128, 128, style, norm, kept}, tokens);
          }
        }
      }
    }
  }
}

// MiMo V2's values, and wider ones, on any number of bytes.
TEST(RopeKvCuda, ValuesOfAnotherSize) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool norm : {false, true}) {
      for (const int64_t tokens : {1, 2, 40}) {
        for (const auto& [dim, v_dim] : {std::pair(192, 128), {128, 64}, {64, 96}, {24, 7}}) {
          for (const int32_t rope_dim : {dim, 16}) {
            run_case(cuda, {dtype, 8, 2, dim, rope_dim, RopeStyle::kHalf, norm, {}, v_dim}, tokens);
          }
        }
      }
    }
  }
}

// No keys and no angles: of a cache of mixed keys queries are mixed, else they stay.
TEST(RopeKvCuda, QueriesAloneWithoutRotation) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int32_t dim : {32, 64, 96, 128, 256}) {
      for (const int64_t tokens : {1, 40}) {
        run_case(cuda, {dtype, 9, 0, dim, 0, RopeStyle::kHalf, false}, tokens);
        run_case(cuda, {dtype, 9, 0, dim, 0, RopeStyle::kHalf, false, KvFormat::kInt4Head}, tokens);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::rope_kv_cuda_test
