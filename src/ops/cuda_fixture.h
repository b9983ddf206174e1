// For the tests of CUDA kernels: matrices on the device with poisoned gaps, and what a value
// becomes in a type. Tests that need a GPU are skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "ops/op_fixture.h"
#include "tensor/half.h"

namespace headrace {

// Nothing where there is no GPU; says why.
inline std::optional<TestDevice> cuda_test_device(int64_t workspace_bytes = 64 << 20) {
  auto created = create_cuda_device(0);
  if (!created.ok()) return std::nullopt;
  return std::optional<TestDevice>(std::in_place, std::move(*created), workspace_bytes);
}
#define HR_CUDA_DEVICE_OR_SKIP(name)                            \
  std::optional<TestDevice> name##_made = cuda_test_device();   \
  if (!name##_made) GTEST_SKIP() << "not run: there is no GPU"; \
  TestDevice& name = *name##_made

// Whether a kernel can compute this, where it is the choice and where batch invariance makes it
// that.
template <class Args>
bool takes(TestDevice& cuda, const Kernel<Args>& kernel, const Args& args) {
  DeviceTraits invariant = cuda.device().traits();
  invariant.batch_invariant = true;
  return kernel.supports(cuda.device().traits(), args) || kernel.supports(invariant, args);
}

// Values as elements of `dtype`, and back.
inline std::vector<std::byte> encode(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_info(dtype).block_bytes));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half =
        dtype == DType::kF16 ? float_to_half(values[i]) : float_to_bfloat16(values[i]);
    if (dtype == DType::kF32) std::memcpy(&bytes[4 * i], &values[i], 4);
    if (dtype != DType::kF32) std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}
inline std::vector<float> decode(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(dtype_info(dtype).block_bytes));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (dtype == DType::kF32) std::memcpy(&values[i], &bytes[4 * i], 4);
    if (dtype != DType::kF32) std::memcpy(&half, &bytes[2 * i], 2);
    if (dtype == DType::kF16) values[i] = half_to_float(half);
    if (dtype == DType::kBF16) values[i] = bfloat16_to_float(half);
  }
  return values;
}
// Random values that `dtype` can say.
inline std::vector<float> rounded_floats(Rng& rng, DType dtype, int64_t count, float sigma = 1.0f) {
  return decode(dtype, encode(dtype, random_floats(rng, count, sigma)));
}
// One unit in the last place of results of a type, relative.
inline double unit_of(DType dtype) {
  return dtype == DType::kF32 ? 4e-6 : dtype == DType::kF16 ? 0x1p-10 : 0x1p-7;
}

// Plain values on the device.
template <class T>
class CudaArray {
 public:
  CudaArray(TestDevice& device, const std::vector<T>& values) : device_(device) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    buffer_ = std::move(device.device().allocate(bytes).value());
    device.stream().copy_in(buffer_.data(), reinterpret_cast<const std::byte*>(values.data()),
                            bytes);
    EXPECT_TRUE(device.stream().synchronize().ok());
  }
  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  std::span<T> span() const { return {data(), static_cast<size_t>(buffer_.size()) / sizeof(T)}; }
  std::vector<T> read() const {
    std::vector<T> values(static_cast<size_t>(buffer_.size()) / sizeof(T));
    device_.stream().copy_out(reinterpret_cast<std::byte*>(values.data()), buffer_.data(),
                              buffer_.size());
    const Status status = device_.stream().synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }

 private:
  TestDevice& device_;
  Buffer buffer_;
};

// A matrix on the device, rows `gap` elements apart, made of `values` [rows, columns]. The gaps,
// and all of it where there are no values, hold NaN.
class CudaMatrix {
 public:
  CudaMatrix(TestDevice& device, DType dtype, int64_t rows, int64_t columns, int64_t gap,
             const std::vector<float>* values)
      : dtype_(dtype),
        rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        bytes_(device, encode(dtype, spread(values))) {}

  TensorView view() const {
    return {bytes_.data(), dtype_, Shape{rows_, columns_},
            stride_ * dtype_info(dtype_).block_bytes};
  }
  // [rows, columns]; fails the test where a gap was written.
  std::vector<float> read() const {
    const std::vector<float> all = decode(dtype_, bytes_.read());
    std::vector<float> dense;
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      const float value = all[static_cast<size_t>(i)];
      if (i % stride_ < columns_) {
        dense.push_back(value);
      } else {
        EXPECT_TRUE(std::isnan(value)) << "gap of row " << i / stride_;
      }
    }
    return dense;
  }

 private:
  std::vector<float> spread(const std::vector<float>* values) const {
    std::vector<float> all(static_cast<size_t>(rows_ * stride_), std::nanf(""));
    for (int64_t i = 0; values != nullptr && i < rows_ * columns_; ++i) {
      all[static_cast<size_t>(i / columns_ * stride_ + i % columns_)] =
          (*values)[static_cast<size_t>(i)];
    }
    return all;
  }

  DType dtype_;
  int64_t rows_, columns_, stride_;
  CudaArray<std::byte> bytes_;
};

// A view of values on the host, for reference kernels.
inline TensorView host_view(std::vector<float>& values, int64_t rows, int64_t columns) {
  CHECK(static_cast<int64_t>(values.size()) == rows * columns);
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, Shape{rows, columns}};
}

// |actual - expected| <= relative * |expected| + absolute, everywhere.
inline void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                        double relative, double absolute = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], relative * std::abs(expected[i]) + absolute)
        << "element " << i;
  }
}

}  // namespace headrace
