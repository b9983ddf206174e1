#include "ops/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"

namespace headrace {
namespace {

// Values by the types' definitions in tensor/dtype.h, one element at a time.
float element(const std::byte* row, DType dtype, int64_t c) {
  const auto half_at = [](const std::byte* at) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return half_to_float(bits);
  };
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, row + c * 4, 4);
    return value;
  }
  if (dtype == DType::kF16) return half_at(row + c * 2);
  if (dtype == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, row + c * 2, 2);
    return bfloat16_to_float(bits);
  }
  const std::byte* block = row + c / 32 * dtype_info(dtype).block_bytes;
  const int i = static_cast<int>(c % 32);
  const float d = half_at(block);
  if (dtype == DType::kQ8_0) return d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  const int byte = static_cast<int>(block[(dtype == DType::kQ4_1 ? 4 : 2) + i % 16]);
  const int q = i < 16 ? byte & 15 : byte >> 4;
  if (dtype == DType::kQ4_0) return d * static_cast<float>(q - 8);
  return d * static_cast<float>(q) + half_at(block + 2);
}

std::vector<std::byte> random_matrix(Rng& rng, DType dtype, int64_t n, int64_t k) {
  std::vector<std::byte> bytes(static_cast<size_t>(*tensor_bytes(dtype, Shape{n, k})));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng.next() & 0x3b);  // finite as any float
  return bytes;
}

TEST(LinearWeight, RowsReadBackAsTheSourceSays) {
  Rng rng(1);
  const auto device = create_cpu_device(2);
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    for (const int64_t n : {1, 16, 300}) {
      const int64_t k = is_quantised(dtype) ? 96 : 77;
      const std::vector<std::byte> bytes = random_matrix(rng, dtype, n, k);
      const ConstTensorView view(bytes.data(), dtype, Shape{n, k});
      const LinearSource source{view, {}};
      for (const auto compute : {LinearCompute::kFast, LinearCompute::kFloat32}) {
        const auto weight = LinearWeight::pack(*device, {&source, 1}, compute);
        ASSERT_TRUE(weight.ok());
        std::vector<float> row(static_cast<size_t>(k));
        for (int64_t r = 0; r < n; ++r) {
          weight->read_row(r, row.data());
          for (int64_t c = 0; c < k; ++c) {
            ASSERT_EQ(row[static_cast<size_t>(c)], element(view.row(r), dtype, c))
                << dtype_name(dtype) << " row " << r << " column " << c;
          }
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
