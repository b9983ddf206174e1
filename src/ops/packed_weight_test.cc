#include "ops/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/random_matrix.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

std::vector<std::byte> random_matrix(Rng& rng, DType dtype, int64_t n, int64_t k) {
  std::vector<std::byte> bytes(static_cast<size_t>(*tensor_bytes(dtype, Shape{n, k})));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next() & 0x3b);  // finite as any float
  return bytes;
}

TEST(LinearWeight, RowsReadBackAsTheSourceSays) {
  Rng rng(1);
  const auto device = create_cpu_device(2);
  for (const DType dtype : kWeightTypes) {
    for (const int64_t n : {1, 16, 300}) {
      const int64_t k = is_quantised(dtype) ? 3 * dtype_info(dtype).block_elements : 77;
      const std::vector<std::byte> bytes = random_matrix(rng, dtype, n, k);
      const ConstTensorView view(bytes.data(), dtype, Shape{n, k});
      const LinearSource source{view, {}};
      for (const auto compute : {LinearCompute::kFast, LinearCompute::kFloat32}) {
        const auto weight = LinearWeight::pack(*device, {&source, 1}, compute);
        ASSERT_TRUE(weight.ok());
        std::vector<float> row(static_cast<size_t>(k)), expected(row.size());
        for (int64_t r = 0; r < n; ++r) {
          weight->read_row(r, row.data());
          dequantise_row(view, r, expected.data());
          ASSERT_EQ(row, expected) << dtype_name(dtype) << " row " << r;
        }
      }
    }
  }
}

TEST(LinearWeight, TakesTheFilesBytesAndNoMore) {
  Rng rng(2);
  const auto device = create_cpu_device(1);
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    const std::vector<std::byte> bytes = random_matrix(rng, dtype, 160, 576);
    const LinearSource source{{bytes.data(), dtype, Shape{160, 576}}, {}};
    const auto weight = LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast);
    ASSERT_TRUE(weight.ok());
    EXPECT_EQ(weight->packed_bytes(), static_cast<int64_t>(bytes.size())) << dtype_name(dtype);
  }
}

TEST(LinearWeight, ReadsStridedSources) {
  const auto device = create_cpu_device(1);
  const std::vector<float> wide = {1, 2, -1, 3, 4, -1};
  const LinearSource source{
      {reinterpret_cast<const std::byte*>(wide.data()), DType::kF32, Shape{2, 2}, 12}, {}};
  const auto weight = LinearWeight::pack(*device, {&source, 1}, LinearCompute::kFast);
  float row[2];
  weight->read_row(1, row);
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 4);
}

TEST(LinearWeight, SaysWhatItCannotPack) {
  const auto device = create_cpu_device(1);
  const std::vector<std::byte> bytes(4096);
  const auto status = [&](std::initializer_list<LinearSource> sources) {
    const std::vector<LinearSource> list(sources);
    return LinearWeight::pack(*device, list, LinearCompute::kFast).status();
  };
  const ConstTensorView f32(bytes.data(), DType::kF32, Shape{4, 8});
  const ConstTensorView wider(bytes.data(), DType::kF32, Shape{4, 9});
  const ConstTensorView ints(bytes.data(), DType::kI32, Shape{4, 8});
  const ConstTensorView ragged(bytes.data(), DType::kQ8_0, Shape{4, 33}, 68);
  EXPECT_EQ(status({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{f32, {}}, {wider, {}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{ragged, {}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({{ints, {}}}).code(), StatusCode::kUnsupported);
  EXPECT_NE(status({{ints, {}}}).message().find("I32"), std::string::npos);
}

}  // namespace
}  // namespace headrace
