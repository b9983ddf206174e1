// What the index keeps of a token, and its rotated queries, on a GPU beside the CPU's.
#include <gtest/gtest.h>

#include <vector>

#include "ops/attention/index_keys.h"
#include "ops/attention/kv_numbers.h"
#include "ops/cuda_fixture.h"

namespace headrace::index_keys_cuda_test {
namespace {

constexpr int64_t kTokens = 37;
constexpr int32_t kBlocks = 4;
constexpr auto kUntouched = std::byte{0x11};

struct IndexSizes {
  int32_t heads, dim, pairs;

  KvLayerView view(KvFormat format) const {
    KvLayerView kv{.k_format = format,
                   .v_format = format,
                   .keys = KeyLayout::kRows,
                   .v_aliases_k = true,
                   .kv_heads = 1,
                   .k_dim = 24,
                   .v_dim = 16,
                   .index_dim = dim};
    kv.index_offset = k_part_bytes(kv);
    kv.block_stride = layer_part_bytes(kv);
    return kv;
  }
};

void expect_same_index(const KvLayerView& on_cpu, std::vector<std::byte>& on_gpu) {
  KvLayerView kv = on_cpu;
  kv.base = on_gpu.data();
  const double error = index_format(kv) == KvFormat::kF32 ? 1e-5 : 2e-3;
  for (int32_t block = 0; block < kBlocks; ++block) {
    for (int64_t i = 0; i < kv.index_offset; ++i) {
      ASSERT_EQ(on_gpu[static_cast<size_t>(block * kv.block_stride + i)], kUntouched);
    }
    for (int32_t token = 0; token < 16; ++token) {
      for (int32_t d = 0; d < kv.index_dim; ++d) {
        const float want = load_number(index_head(on_cpu, block), token, d);
        const float got = load_number(index_head(kv, block), token, d);
        ASSERT_NEAR(got, want, error * (1 + std::abs(want))) << block << " " << token << " " << d;
      }
    }
  }
}

void run_case(TestDevice& cuda, const IndexSizes& sizes, DType dtype) {
  const int64_t width = int64_t{sizes.heads} * sizes.dim;
  Rng rng(5);
  std::vector<float> keys = random_floats(rng, kTokens * sizes.dim);
  std::vector<float> queries = rounded_floats(rng, dtype, kTokens * width);
  std::vector<float> cos = random_floats(rng, kTokens * sizes.pairs);
  std::vector<float> sin = random_floats(rng, kTokens * sizes.pairs);
  const std::vector<float> norm = random_floats(rng, sizes.dim);
  const std::vector<float> bias = random_floats(rng, sizes.dim);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < kTokens; ++t) slots.push_back((t * 29 + 5) % (16 * kBlocks));
  const KvLayerView layout = sizes.view(kv_format(dtype));
  const std::vector<std::byte> empty(static_cast<size_t>(kBlocks * layout.block_stride),
                                     kUntouched);
  std::vector<std::byte> expected_cache = empty;
  std::vector<float> expected_queries = queries;
  IndexKeysArgs args{.keys = host_view(keys, kTokens, sizes.dim),
                     .norm = norm.data(),
                     .norm_bias = bias.data(),
                     .norm_eps = 1e-6f,
                     .queries = host_view(expected_queries, kTokens, width),
                     .cos = host_view(cos, kTokens, sizes.pairs),
                     .sin = host_view(sin, kTokens, sizes.pairs),
                     .cache = layout,
                     .slots = slots};
  args.cache.base = expected_cache.data();
  TestDevice cpu = TestDevice::cpu(1);
  OpContext on_cpu = cpu.context();
  index_keys(on_cpu, args);
  const KvLayerView expected = args.cache;

  const CudaArray<std::byte> cache(cuda, empty);
  const CudaMatrix keys_on(cuda, DType::kF32, kTokens, sizes.dim, 8, &keys),
      queries_on(cuda, dtype, kTokens, width, 8, &queries),
      cos_on(cuda, DType::kF32, kTokens, sizes.pairs, 0, &cos),
      sin_on(cuda, DType::kF32, kTokens, sizes.pairs, 0, &sin);
  const CudaArray<float> norm_on(cuda, norm), bias_on(cuda, bias);
  const CudaArray<int64_t> slots_on(cuda, slots);
  args.keys = keys_on.view();
  args.norm = norm_on.data();
  args.norm_bias = bias_on.data();
  args.queries = queries_on.view();
  args.cos = cos_on.view();
  args.sin = sin_on.view();
  args.cache.base = cache.data();
  args.slots = slots_on.span();
  OpContext context = cuda.context();
  index_keys(context, args);
  const double near = 2 * unit_of(dtype);
  expect_near(queries_on.read(), expected_queries, near, near);
  std::vector<std::byte> actual = cache.read();
  expect_same_index(expected, actual);
}

TEST(IndexKeysCuda, WhatIsKeptAndAskedIsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const IndexSizes& sizes :
       {IndexSizes{2, 12, 3}, IndexSizes{12, 16, 4}, IndexSizes{64, 128, 32}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(testing::Message()
                   << sizes.heads << " heads of " << sizes.dim << ", " << dtype_name(dtype));
      run_case(cuda, sizes, dtype);
    }
  }
}

}  // namespace
}  // namespace headrace::index_keys_cuda_test
