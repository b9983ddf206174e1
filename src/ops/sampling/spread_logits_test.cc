#include "ops/sampling/spread_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/cuda_fixture.h"

namespace headrace::spread_logits_test {
namespace {

constexpr int64_t kRows = 3, kColumns = 300, kVocabulary = 5000;

std::vector<TokenId> some_ids() {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < kColumns; ++i) ids.push_back(static_cast<TokenId>(i * 16 + i % 7));
  return ids;
}

// Logit c of a row at its id, and nothing elsewhere.
void expect_spread(const std::vector<float>& all, const std::vector<float>& logits,
                   const std::vector<TokenId>& ids) {
  std::vector<float> wanted(static_cast<size_t>(kRows * kVocabulary), -HUGE_VALF);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const int64_t id = ids.empty() ? c : ids[static_cast<size_t>(c)];
      wanted[static_cast<size_t>(r * kVocabulary + id)] =
          logits[static_cast<size_t>(r * kColumns + c)];
    }
  }
  EXPECT_EQ(all, wanted);
}

TEST(SpreadLogits, PutsEachAtItsId) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Rng rng(6);
  std::vector<float> logits = random_floats(rng, kRows * kColumns, 1.0f);
  for (const std::vector<TokenId>& ids : {some_ids(), std::vector<TokenId>()}) {
    std::vector<float> all(static_cast<size_t>(kRows * kVocabulary));
    spread_logits(context, {.logits = host_view(logits, kRows, kColumns),
                            .ids = ids.empty() ? nullptr : ids.data(),
                            .all = host_view(all, kRows, kVocabulary)});
    expect_spread(all, logits, ids);
  }
}

TEST(SpreadLogits, OfNoneNothingComes) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  std::vector<float> all(static_cast<size_t>(kRows * kColumns), 1.0f);
  const TensorView rows = host_view(all, kRows, kColumns);
  spread_logits(
      context, {.logits = {rows.data, DType::kF32, Shape{kRows, 0}, rows.row_stride}, .all = rows});
  EXPECT_EQ(all, std::vector<float>(all.size(), -HUGE_VALF));
}

TEST(SpreadLogitsCuda, PutsEachAtItsId) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  OpContext context = cuda.context();
  Rng rng(7);
  std::vector<float> logits = random_floats(rng, kRows * kColumns, 1.0f);
  for (const std::vector<TokenId>& ids : {some_ids(), std::vector<TokenId>()}) {
    const CudaMatrix from(cuda, DType::kF32, kRows, kColumns, 5, &logits);
    const CudaMatrix all(cuda, DType::kF32, kRows, kVocabulary, 3, nullptr);
    const CudaArray<TokenId> on_gpu(cuda, ids.empty() ? std::vector<TokenId>{0} : ids);
    spread_logits(
        context,
        {.logits = from.view(), .ids = ids.empty() ? nullptr : on_gpu.data(), .all = all.view()});
    expect_spread(all.read(), logits, ids);
  }
}

}  // namespace
}  // namespace headrace::spread_logits_test
