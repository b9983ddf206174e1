#include "models/parts/lightning_mixer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/parts/part_fixture.h"

namespace headrace::lightning_mixer_test {
namespace {

constexpr int64_t kHidden = 20;
constexpr int32_t kRows = 29;
constexpr LightningSpec kSpec{.heads = 3, .head_dim = 8, .slope_factor = 0.7f, .norm_eps = 1e-6f};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// Of x + mixer(x), as sums over all rows before: o_t = sum_s exp(-slope (t - s)) (k_s' q_t) v_s.
Rows expected(const TestMatrix& x, const MadeTensors& tensors) {
  const auto dim = static_cast<size_t>(kSpec.head_dim);
  Rows made, out;
  for (const Row& row : rows_of(x)) {
    Row qkv = times(tensors.values("attn_qkv.weight"), row);
    for (double& value : qkv) value *= logistic(value);
    made.push_back(std::move(qkv));
    Row heads;
    for (size_t h = 0; h < static_cast<size_t>(kSpec.heads); ++h) {
      const double slope =
          double{kSpec.slope_factor} * std::exp2(-8.0 * static_cast<double>(h + 1) / kSpec.heads);
      Row o(dim);
      for (size_t s = 0; s < made.size(); ++s) {
        const double* const q = &made.back()[3 * h * dim];
        const double* const k = &made[s][(3 * h + 1) * dim];
        const double weight = std::inner_product(q, q + dim, k, 0.0) *
                              std::exp(-slope * static_cast<double>(made.size() - 1 - s));
        for (size_t d = 0; d < dim; ++d) o[d] += weight * made[s][(3 * h + 2) * dim + d];
      }
      heads.insert(heads.end(), o.begin(), o.end());
    }
    heads = rms_normed(heads, tensors.values("attn_norm_2.weight"), kSpec.norm_eps);
    const Row gate = times(tensors.values("attn_gate.weight"), row);
    for (size_t i = 0; i < heads.size(); ++i) heads[i] *= logistic(gate[i]);
    out.push_back(times(tensors.values("attn_output.weight"), heads));
    for (size_t i = 0; i < row.size(); ++i) out.back()[i] += row[i];
  }
  return out;
}

TEST(LightningMixer, IsASumOverTheRowsBefore) {
  Rng rng(3);
  const TestMatrix x(rng, kRows, kHidden);
  PartPass pass(kRows, kHidden, /*in_place=*/true);
  MadeTensors tensors(pass.device());
  const auto part = make_part(kSpec, kHidden);
  ASSERT_TRUE(part->load(tensors).ok());
  PartCache cache(pass.device(), *part, kRows);
  const TestMatrix whole = pass.run(*part, cache, x, {});
  EXPECT_TRUE(rows_close(whole, expected(x, tensors)));
  PartCache in_steps(pass.device(), *part, kRows);
  for (const auto& [first, count] : {std::pair(0, 1), {1, 17}, {18, 11}}) {
    TestMatrix some(count, kHidden);
    for (int32_t t = 0; t < count; ++t) {
      for (int64_t i = 0; i < kHidden; ++i) some.at(t, i) = x.at(first + t, i);
    }
    PartPass step(count, kHidden, true);
    const TestMatrix rows = step.run(*part, in_steps, some, {.first = first});
    for (int32_t t = 0; t < count; ++t) {
      for (int64_t i = 0; i < kHidden; ++i) EXPECT_EQ(rows.at(t, i), whole.at(first + t, i));
    }
  }
}

TEST(LightningMixer, HeadsThatAGpuDoesNotTakeAreRefusedByName) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no kernels of a GPU";
  const auto checked = [](int32_t head_dim) {
    LightningSpec spec = kSpec;
    spec.head_dim = head_dim;
    return make_part(spec, kHidden)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  };
  EXPECT_TRUE(checked(128).ok() && checked(256).ok());
  EXPECT_EQ(checked(264).message(),
            "heads of lightning attention of 264 are larger than kernels on a GPU take, which is "
            "256: use --device cpu");
}

}  // namespace
}  // namespace headrace::lightning_mixer_test
