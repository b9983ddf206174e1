#include "ops/attention/latent_kv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"

namespace headrace::latent_kv_test {
namespace {

constexpr int32_t kLatent = 32, kRotated = 6, kHeads = 3, kQuery = 10, kTokens = 21;

class LatentKvTest : public testing::TestWithParam<KvFormat> {
 protected:
  LatentKvTest() {
    cache_ = {.k_format = GetParam(),
              .v_format = GetParam(),
              .v_aliases_k = true,
              .kv_heads = 1,
              .k_dim = kLatent + kRotated,
              .v_dim = kLatent};
    cache_.v_offset = cache_.block_stride = k_part_bytes(cache_);
    memory_.resize(static_cast<size_t>(4 * cache_.block_stride) + 64);
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    cache_.base = memory_.data() + (64 - at % 64);
    slots_.resize(kTokens);
    std::iota(slots_.begin(), slots_.end(), 19);  // from the middle of the second block on
  }

  KvLayerView cache_;
  std::vector<std::byte> memory_;
  std::vector<int64_t> slots_;
};

TEST_P(LatentKvTest, KeepsTheNormedLatentAndTheRotatedKey) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(5);
  TestMatrix kv(rng, kTokens, kLatent + kRotated), q(rng, kTokens, int64_t{kHeads} * kQuery);
  TestMatrix cos(kTokens, kRotated / 2), sin(kTokens, kRotated / 2);
  TestMatrix queries(rng, kTokens, int64_t{kHeads} * (kLatent + kRotated));
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kRotated / 2; ++i) {
      cos.at(t, i) = static_cast<float>(std::cos(0.3 * static_cast<double>(t * (i + 1))));
      sin.at(t, i) = static_cast<float>(std::sin(0.3 * static_cast<double>(t * (i + 1))));
    }
  }
  const std::vector<float> norm = random_floats(rng, kLatent, 1.0f);
  const TestMatrix before = queries;
  latent_kv(context, {.kv = kv.view(),
                      .q = q.view(),
                      .cos = cos.view(),
                      .sin = sin.view(),
                      .norm = norm.data(),
                      .norm_eps = 1e-6f,
                      .heads = kHeads,
                      .cache = cache_,
                      .slots = slots_,
                      .queries = queries.view()});
  const auto turned = [&](int64_t t, int64_t i, const float* from) {
    const double a = from[i % (kRotated / 2)], b = from[i % (kRotated / 2) + kRotated / 2];
    const double c = cos.at(t, i % (kRotated / 2)), s = sin.at(t, i % (kRotated / 2));
    return i < kRotated / 2 ? a * c - b * s : b * c + a * s;
  };
  const double error = GetParam() == KvFormat::kF32   ? 1e-6
                       : GetParam() == KvFormat::kF16 ? 2e-3
                                                      : 2e-2;
  for (int64_t t = 0; t < kTokens; ++t) {
    double squares = 0;
    for (int64_t d = 0; d < kLatent; ++d) squares += double{kv.at(t, d)} * kv.at(t, d);
    const double rms = std::sqrt(squares / kLatent + 1e-6);
    for (int32_t d = 0; d < kLatent + kRotated; ++d) {
      const double want = d < kLatent ? kv.at(t, d) / rms * norm[static_cast<size_t>(d)]
                                      : turned(t, d - kLatent, &kv.at(t, kLatent));
      EXPECT_NEAR(load_key(cache_, slots_[static_cast<size_t>(t)], 0, d), want, error)
          << t << " " << d;
    }
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t d = 0; d < kLatent + kRotated; ++d) {
        const int64_t column = h * (kLatent + kRotated) + d;
        const double want = d < kLatent
                                ? before.at(t, column)
                                : turned(t, d - kLatent, &q.at(t, (h + 1) * kQuery - kRotated));
        EXPECT_NEAR(queries.at(t, column), want, 1e-6) << t << " " << h << " " << d;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LatentKvTest,
                         testing::Values(KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8));

}  // namespace
}  // namespace headrace::latent_kv_test
