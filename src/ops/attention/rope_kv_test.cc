#include "ops/attention/rope_kv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/op_fixture.h"
#include "ops/rows/rope_angles.h"

namespace headrace {
namespace {

struct Heads {
  int32_t query, kv, dim;
};

struct Case {
  Heads heads;
  int64_t tokens;
  int64_t rope_dim;
  RopeStyle style;
  DType dtype;
  bool norms = false;  // of q and k heads
};

constexpr int64_t kBlocks = 7;

// The rows after the op, and the cache, of which every byte starts as 0x7f: NaN in each type.
struct Outcome {
  TestMatrix qkv;
  std::vector<std::byte> cache;
};

KvLayerView view_of(const Case& c, std::vector<std::byte>& cache) {
  KvLayerView kv{.dtype = c.dtype, .kv_heads = c.heads.kv, .head_dim = c.heads.dim};
  kv.v_offset = kv_part_bytes(kv);
  kv.block_stride = 2 * kv.v_offset + 64;  // other layers lie between
  cache.resize(static_cast<size_t>(kBlocks * kv.block_stride), std::byte{0x7f});
  kv.base = cache.data();
  return kv;
}

Outcome run(OpContext context, const Kernel<RopeKvArgs>& kernel, const Case& c) {
  Rng rng(5);
  const int64_t columns = (c.heads.query + 2 * c.heads.kv) * c.heads.dim;
  Outcome outcome{TestMatrix(rng, c.tokens, columns), {}};
  const KvLayerView kv = view_of(c, outcome.cache);
  std::vector<int64_t> slots;  // scattered and without repeats
  for (int64_t t = 0; t < c.tokens; ++t) slots.push_back((t * 37 + 11) % (kBlocks * 16));
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(t * 13));
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < c.rope_dim / 2; ++i) {
    inv_freq.push_back(
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(c.rope_dim)));
  }
  TestMatrix cos(c.tokens, c.rope_dim / 2), sin(c.tokens, c.rope_dim / 2);
  rope_angles(context,
              {.positions = positions, .inv_freq = inv_freq, .cos = cos.view(), .sin = sin.view()});
  const std::vector<float> q_norm = random_floats(rng, c.heads.dim),
                           k_norm = random_floats(rng, c.heads.dim);
  const RopeKvArgs args{.qkv = outcome.qkv.view(),
                        .cos = cos.view(),
                        .sin = sin.view(),
                        .style = c.style,
                        .query_heads = c.heads.query,
                        .kv = kv,
                        .slots = slots,
                        .q_norm = c.norms ? q_norm.data() : nullptr,
                        .k_norm = c.norms ? k_norm.data() : nullptr,
                        .norm_eps = 1e-6f};
  if (kernel.supports(context.device.traits(), args)) {
    kernel.run(context, args);
  } else {
    outcome.cache.clear();
  }
  return outcome;
}

// Rounding of k may differ in its last bit; v and what was not written may not differ, but for
// subnormal F16 under qemu, whose conversions obey flush-to-zero.
void expect_same_cache(DType dtype, const std::vector<std::byte>& cache,
                       const std::vector<std::byte>& expected) {
  const double tiny = dtype == DType::kF16 ? 0x1p-14 : 1e-6;
  const auto bytes = static_cast<size_t>(dtype_info(dtype).block_bytes);
  for (size_t at = 0; at < cache.size(); at += bytes) {
    if (std::memcmp(&cache[at], &expected[at], bytes) == 0) continue;
    const float a = load_kv(dtype, &cache[at]), b = load_kv(dtype, &expected[at]);
    ASSERT_NEAR(a, b, std::abs(b) * 0x1p-10 + tiny) << at;
  }
}

void expect_kernels_agree(TestDevice& device, const Case& c) {
  const Outcome expected = run(device.context(), rope_kv_kernels().all().back(), c);
  for (const auto& kernel : rope_kv_kernels().all()) {
    const Outcome outcome = run(device.context(), kernel, c);
    if (outcome.cache.empty()) continue;
    SCOPED_TRACE(kernel.name);
    EXPECT_TRUE(all_close(outcome.qkv, expected.qkv, 1e-6, 2e-6));
    EXPECT_TRUE(outcome.qkv.gaps_untouched());
    expect_same_cache(c.dtype, outcome.cache, expected.cache);
  }
}

TEST(RopeKv, EveryKernelAgreesWithTheReference) {
  TestDevice device = TestDevice::cpu(2);
  const Heads heads[] = {{9, 3, 64}, {4, 4, 80}, {8, 1, 128}, {2, 1, 96}, {2, 2, 256}, {1, 1, 24}};
  for (const Heads& h : heads) {
    for (const int64_t tokens : {1, 5, 70}) {
      for (const int64_t rope_dim : {h.dim, h.dim / 2, 0}) {
        for (const auto style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
          for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
            for (const bool norms : {false, true}) {
              expect_kernels_agree(device, {h, tokens, rope_dim, style, dtype, norms});
            }
          }
        }
      }
    }
  }
}

// A head that was normalised has the weights' length, whatever it was before.
TEST(RopeKv, NormsComeBeforeTheRotation) {
  TestDevice device = TestDevice::cpu(1);
  const Case plain{{2, 1, 32}, 3, 32, RopeStyle::kHalf, DType::kF32, false};
  Case normed = plain;
  normed.norms = true;
  Rng rng(5);
  const TestMatrix rows(rng, 3, 4 * 32);  // as run() makes them
  const std::vector<float> q_norm = random_floats(rng, 32);
  const Outcome outcome = run(device.context(), rope_kv_kernels().all().back(), normed);
  for (int64_t head = 0; head < 2; ++head) {
    double squares = 0, expected = 0, actual = 0;
    for (int64_t d = 0; d < 32; ++d) squares += std::pow(rows.at(2, head * 32 + d), 2);
    for (int64_t d = 0; d < 32; ++d) {
      const double x = rows.at(2, head * 32 + d) / std::sqrt(squares / 32 + 1e-6);
      expected += std::pow(x * q_norm[static_cast<size_t>(d)], 2);
      actual += std::pow(outcome.qkv.at(2, head * 32 + d), 2);  // a rotation keeps the length
    }
    EXPECT_NEAR(actual, expected, 1e-4 * expected);
  }
}

TEST(RopeKv, PutsKeysAndValuesWhereTheLayoutSays) {
  TestDevice device = TestDevice::cpu(1);
  const Case c{{2, 1, 16}, 3, 16, RopeStyle::kHalf, DType::kF32};
  for (const auto& kernel : rope_kv_kernels().all()) {
    Outcome outcome = run(device.context(), kernel, c);
    if (outcome.cache.empty()) continue;
    KvLayerView kv = view_of(c, outcome.cache);
    for (int64_t t = 0; t < 3; ++t) {
      const int64_t slot = (t * 37 + 11) % (kBlocks * 16);
      for (int32_t d = 0; d < 16; ++d) {
        EXPECT_EQ(load_kv(DType::kF32, key_at(kv, slot, 0, d)), outcome.qkv.at(t, 32 + d));
        EXPECT_EQ(load_kv(DType::kF32, value_at(kv, slot, 0, d)), outcome.qkv.at(t, 48 + d));
      }
    }
  }
}

// The score of two rotated vectors depends on the distance of their positions alone.
TEST(RopeKv, RotationKeepsRelativePositions) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const std::vector<double> inv_freq = {1.0, 0.1, 0.01, 0.001};
  const auto rotated_dot = [&](int32_t p, int32_t q) {
    TestMatrix cos(2, 4), sin(2, 4);
    rope_angles(context, {.positions = std::vector<int32_t>{p, q},
                          .inv_freq = inv_freq,
                          .cos = cos.view(),
                          .sin = sin.view()});
    double dot = 0;
    for (int64_t i = 0; i < 4; ++i) {  // (1, 0) rotated by both angles
      dot += cos.at(0, i) * cos.at(1, i) + sin.at(0, i) * sin.at(1, i);
    }
    return dot;
  };
  EXPECT_NEAR(rotated_dot(7, 3), rotated_dot(1007, 1003), 1e-6);
}

}  // namespace
}  // namespace headrace
