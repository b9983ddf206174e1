#include "tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"

namespace headrace::tensor_view_test {
namespace {

TEST(TensorBytes, EqualsA128BitReferenceOrIsRefused) {
  Rng rng(11);
  int refused = 0;
  for (int trial = 0; trial < 1'000'000; ++trial) {
    const auto dtype = static_cast<DType>(rng.below(kDTypeInfo.size()));
    const auto dim = [&] {
      return static_cast<int64_t>(rng.next() >> rng.between(1, 63)) - (rng.below(64) == 0);
    };
    const Shape shape{dim(), dim(), dim()};
    const DTypeInfo& info = dtype_info(dtype);
    const auto wide = [&](int i) { return static_cast<unsigned __int128>(shape[i]); };
    bool valid = shape[2] >= 0 && shape[2] % info.block_elements == 0;
    unsigned __int128 expected = valid ? wide(2) / info.block_elements * info.block_bytes : 0;
    constexpr auto kMax = static_cast<unsigned __int128>(std::numeric_limits<int64_t>::max());
    valid = valid && expected <= kMax;
    for (int i = 0; valid && i < 2; ++i) {
      valid = shape[i] >= 0;
      expected *= valid ? wide(i) : 0;
      valid = valid && expected <= kMax;
    }
    const auto bytes = tensor_bytes(dtype, shape);
    ASSERT_EQ(bytes.has_value(), valid) << shape.to_string();
    if (valid) {
      ASSERT_EQ(static_cast<unsigned __int128>(*bytes), expected);
    }
    refused += !valid;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 999'000);
}

TEST(TensorView, RowRange) {
  std::vector<float> data = {0, 1, 2, 3, 4, 5};
  TensorView view(reinterpret_cast<std::byte*>(data.data()), DType::kF32, Shape{3, 2});
  EXPECT_EQ(f32_row(view.row_range(1, 2), 1)[0], 4.0f);
  EXPECT_EQ(view.shape.to_string(), "[3, 2]");
}

}  // namespace
}  // namespace headrace::tensor_view_test
