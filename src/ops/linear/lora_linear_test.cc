#include "ops/linear/lora_linear.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "ops/op_fixture.h"
#include "tensor/half.h"

namespace headrace::lora_linear_test {
namespace {

// Rows of a type, padded with zeros as a factor's A is.
class FactorMatrix {
 public:
  FactorMatrix(Rng& rng, DType dtype, int64_t rows, int64_t columns)
      : dtype_(dtype), shape_{rows, columns} {
    const int64_t stride = (columns + kLoraPad - 1) / kLoraPad * kLoraPad;
    stride_ = stride * dtype_info(dtype).block_bytes;
    bytes_.resize(static_cast<size_t>(rows * stride_));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) set(r, c, random_normal(rng, 0.3f));
    }
  }
  // B [n, rank] in panels, and random numbers where B has no row.
  static FactorMatrix panels(Rng& rng, DType dtype, int64_t rank, int64_t n) {
    return {rng, dtype, (n + kLoraPad - 1) / kLoraPad, rank * kLoraPad};
  }
  ConstTensorView view() const { return {bytes_.data(), dtype_, shape_, stride_}; }

 private:
  void set(int64_t row, int64_t column, float value) {
    std::byte* const at = bytes_.data() + row * stride_ + column * dtype_info(dtype_).block_bytes;
    const uint16_t half = float_to_half(value);
    if (dtype_ == DType::kF16) std::memcpy(at, &half, 2);
    if (dtype_ == DType::kF32) std::memcpy(at, &value, 4);
  }
  DType dtype_;
  Shape shape_;
  int64_t stride_ = 0;
  std::vector<std::byte> bytes_;
};

// An adapter of two factors, whose columns of y leave some between them.
struct TestAdapter {
  TestAdapter(Rng& rng, DType dtype, int64_t rank, int64_t k, int64_t n)
      : a1(rng, dtype, rank, k),
        b1(FactorMatrix::panels(rng, dtype, rank, n / 3)),
        a2(rng, dtype, rank + 1, k),
        b2(FactorMatrix::panels(rng, dtype, rank + 1, n / 2)) {
    factors = {{a1.view(), b1.view(), n / 3, 0.5f, 0},
               {a2.view(), b2.view(), n / 2, 2.0f, n - n / 2}};
  }
  FactorMatrix a1, b1, a2, b2;
  std::vector<LoraFactor> factors;
};

TEST(LoraLinear, EveryKernelIsNearTheReference) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const int64_t rank : {1, 4, 16, 19}) {
      for (const auto& [k, n] : {std::pair<int64_t, int64_t>{5, 7}, {64, 48}, {100, 700}}) {
        Rng rng(static_cast<uint64_t>(rank * 1000 + k));
        const TestAdapter first(rng, dtype, rank, k, n), second(rng, dtype, 2 * rank, k, n);
        constexpr int64_t kRows = 80;
        std::vector<int32_t> many(60), some = {11, 12, 80};  // row 10 is the first of x
        std::iota(many.begin(), many.end(), 13);
        const std::vector<LoraGroup> groups = {{many, first.factors}, {some, second.factors}};
        TestMatrix x(rng, kRows, k);
        TestMatrix before(rng, kRows, n);
        TestMatrix expected = before;
        LoraLinearArgs args{.x = x.view(), .groups = groups, .first_row = 10, .y = expected.view()};
        lora_linear_kernels().all().back().run(context, args);
        for (const int64_t row : {0, 64, 79}) {  // those of no adapter
          EXPECT_TRUE(same_bits(&expected.at(row, 0), &before.at(row, 0), n)) << row;
        }
        EXPECT_FALSE(same_bits(expected, before));
        for (const auto& kernel : lora_linear_kernels().all()) {
          TestMatrix y = before;
          args.y = y.view();
          if (!kernel.supports(device.device().traits(), args)) continue;
          SCOPED_TRACE(kernel.name);
          kernel.run(context, args);
          EXPECT_TRUE(y.gaps_untouched());
          EXPECT_TRUE(all_close(y, expected, 2e-5 * static_cast<double>(k), 2e-5));
        }
      }
    }
  }
}

// Alone, among others of its adapter and beside other adapters, and whatever computes it.
TEST(LoraLinear, ARowsBitsAreItsOwn) {
  constexpr int64_t kRows = 70, kColumns = 200, kOutputs = 300;
  Rng rng(3);
  const TestAdapter first(rng, DType::kF16, 16, kColumns, kOutputs);
  const TestAdapter second(rng, DType::kF16, 7, kColumns, kOutputs);
  TestMatrix x(rng, kRows, kColumns);
  const TestMatrix before(rng, kRows, kOutputs);
  std::vector<int32_t> even, odd;
  for (int32_t row = 0; row < kRows; ++row) (row % 2 == 0 ? even : odd).push_back(row);
  std::vector<TestMatrix> results;
  for (const int threads : {1, 3}) {
    TestDevice device = TestDevice::cpu(threads);
    OpContext context = device.context();
    const DeviceTraits& traits = device.device().traits();
    for (const auto& kernel : lora_linear_kernels().all()) {
      TestMatrix together = before, alone = before;
      const std::vector<LoraGroup> groups = {{even, first.factors}, {odd, second.factors}};
      const LoraLinearArgs args{.x = x.view(), .groups = groups, .y = together.view()};
      if (!kernel.supports(traits, args)) continue;
      kernel.run(context, args);
      for (int32_t row = 0; row < kRows; ++row) {
        const LoraGroup group{{&row, 1}, row % 2 == 0 ? first.factors : second.factors};
        kernel.run(context, {.x = x.view().row_range(row, 1),
                             .groups = {&group, 1},
                             .first_row = row,
                             .y = alone.view().row_range(row, 1)});
      }
      SCOPED_TRACE(kernel.name);
      EXPECT_TRUE(same_bits(together, alone));
      if (!kernel.name.ends_with("reference")) results.push_back(together);
    }
  }
  for (const TestMatrix& result : results) EXPECT_TRUE(same_bits(result, results.front()));
}

TEST(LoraLinear, AnAdapterOfNoFactorsAddsNothing) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Rng rng(1);
  TestMatrix x(rng, 1, 8), y(rng, 1, 8);
  const TestMatrix before = y;
  const int32_t row = 0;
  const LoraGroup group{{&row, 1}, {}};
  lora_linear(context, {.x = x.view(), .groups = {&group, 1}, .y = y.view()});
  EXPECT_TRUE(same_bits(y, before));
}

}  // namespace
}  // namespace headrace::lora_linear_test
