#include "ops/attention/index_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"

namespace headrace::index_keys_test {
namespace {

constexpr int32_t kDim = 12, kPairs = 3, kHeads = 2, kTokens = 21;

class IndexKeysTest : public testing::TestWithParam<KvFormat> {};

TEST_P(IndexKeysTest, KeepsTheNormedKeyWhoseFrontIsRotatedAndNothingElse) {
  KvLayerView cache{.k_format = GetParam(),
                    .v_aliases_k = true,
                    .kv_heads = 1,
                    .k_dim = 8,
                    .v_dim = 6,
                    .index_dim = kDim};
  cache.index_offset = k_part_bytes(cache);
  cache.block_stride = layer_part_bytes(cache);
  std::vector<std::byte> memory(static_cast<size_t>(4 * cache.block_stride), std::byte{0x11});
  cache.base = memory.data();
  std::vector<int64_t> slots(kTokens);
  std::iota(slots.begin(), slots.end(), 19);  // from the middle of the second block on

  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(5);
  TestMatrix keys(rng, kTokens, kDim), queries(rng, kTokens, int64_t{kHeads} * kDim);
  TestMatrix cos(rng, kTokens, kPairs), sin(rng, kTokens, kPairs);
  const std::vector<float> norm = random_floats(rng, kDim), bias = random_floats(rng, kDim);
  const TestMatrix before = queries;
  index_keys(context, {.keys = keys.view(),
                       .norm = norm.data(),
                       .norm_bias = bias.data(),
                       .norm_eps = 1e-6f,
                       .queries = queries.view(),
                       .cos = cos.view(),
                       .sin = sin.view(),
                       .cache = cache,
                       .slots = slots});
  const auto turned = [&](int64_t t, int32_t d, const double* from) {
    if (d >= 2 * kPairs) return from[d];
    const int32_t i = d % kPairs;
    const double a = from[i], b = from[i + kPairs], c = cos.at(t, i), s = sin.at(t, i);
    return d < kPairs ? a * c - b * s : b * c + a * s;
  };
  const double error = GetParam() == KvFormat::kF32 ? 1e-5 : 1e-2;
  for (int64_t t = 0; t < kTokens; ++t) {
    double mean = 0, squares = 0, normed[kDim];
    for (int32_t d = 0; d < kDim; ++d) mean += keys.at(t, d) / kDim;
    for (int32_t d = 0; d < kDim; ++d) squares += std::pow(keys.at(t, d) - mean, 2) / kDim;
    for (int32_t d = 0; d < kDim; ++d) {
      const auto at = static_cast<size_t>(d);
      normed[d] = (keys.at(t, d) - mean) / std::sqrt(squares + 1e-6) * norm[at] + bias[at];
    }
    const int64_t slot = slots[static_cast<size_t>(t)];
    const KvHeadView kept = index_head(cache, slot / 16);
    for (int32_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(load_number(kept, slot % 16, d), turned(t, d, normed), error) << t << " " << d;
    }
    for (int32_t h = 0; h < kHeads; ++h) {
      double query[kDim];
      for (int32_t d = 0; d < kDim; ++d) query[d] = before.at(t, h * kDim + d);
      for (int32_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(queries.at(t, h * kDim + d), turned(t, d, query), 1e-5) << t << " " << d;
      }
    }
  }
  // What lies before the index of a block is another's.
  for (int64_t b = 0; b < 4; ++b) {
    for (int64_t i = 0; i < cache.index_offset; ++i) {
      ASSERT_EQ(memory[static_cast<size_t>(b * cache.block_stride + i)], std::byte{0x11});
    }
  }
}

// Where keys have fewer bits, those of an index have 16.
INSTANTIATE_TEST_SUITE_P(Formats, IndexKeysTest,
                         testing::Values(KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8,
                                         KvFormat::kInt4));

}  // namespace
}  // namespace headrace::index_keys_test
