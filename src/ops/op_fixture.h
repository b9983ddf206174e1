// For the tests of ops: contexts on CPU devices, random rows, poison, comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/op.h"

namespace headrace {

// A device with what an OpContext refers to.
class TestDevice {
 public:
  explicit TestDevice(std::unique_ptr<Device> device, int64_t workspace_bytes = 32 << 20)
      : device_(std::move(device)),
        stream_(device_->create_stream()),
        workspace_(std::move(device_->allocate(workspace_bytes).value())) {}

  // The calling thread computes as the pool's workers do, without denormals, as an engine's must.
  static TestDevice cpu(int threads, CpuFeatures features = CpuFeatures::detect()) {
    flush_denormals_on_this_thread();
    return TestDevice(create_cpu_device(threads, features));
  }

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  OpContext context() { return {*device_, *stream_, workspace_, mesh_}; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank one_;
  Mesh mesh_{&one_, &one_, &one_};
};

// About normal, mean 0, deviation `sigma`.
inline float random_normal(Rng& rng, float sigma = 1.0f) {
  double sum = 0;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return static_cast<float>((sum - 6.0) * sigma);
}

inline std::vector<float> random_floats(Rng& rng, int64_t count, float sigma = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random_normal(rng, sigma);
  return values;
}

// A matrix of f32 whose rows lie `gap` floats apart; everything starts as NaN, so that what a
// kernel did not write, or read from beside its row, shows.
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t columns, int64_t gap = 5)
      : rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        values_(static_cast<size_t>(rows * stride_ + gap),
                std::numeric_limits<float>::quiet_NaN()) {}
  TestMatrix(Rng& rng, int64_t rows, int64_t columns, float sigma = 1.0f)
      : TestMatrix(rows, columns) {
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < columns; ++i) at(t, i) = random_normal(rng, sigma);
    }
  }

  float& at(int64_t row, int64_t column) {
    return values_[static_cast<size_t>(row * stride_ + column)];
  }
  float at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * stride_ + column)];
  }
  TensorView view() {
    return {reinterpret_cast<std::byte*>(values_.data()), DType::kF32, Shape{rows_, columns_},
            stride_ * 4};
  }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // Whether the memory beside the rows still holds the poison.
  bool gaps_untouched() const {
    for (int64_t i = 0; i < static_cast<int64_t>(values_.size()); ++i) {
      const bool gap = i % stride_ >= columns_ || i / stride_ >= rows_;
      if (gap && !std::isnan(values_[static_cast<size_t>(i)])) return false;
    }
    return true;
  }

 private:
  int64_t rows_, columns_, stride_;
  std::vector<float> values_;
};

// |a - b| <= absolute + relative * |b| everywhere; NaN is never close.
inline testing::AssertionResult all_close(const TestMatrix& a, const TestMatrix& b, double absolute,
                                          double relative) {
  for (int64_t t = 0; t < a.rows(); ++t) {
    for (int64_t i = 0; i < a.columns(); ++i) {
      const double difference = std::abs(double{a.at(t, i)} - b.at(t, i));
      if (!(difference <= absolute + relative * std::abs(b.at(t, i)))) {
        return testing::AssertionFailure()
               << "[" << t << ", " << i << "]: " << a.at(t, i) << " instead of " << b.at(t, i);
      }
    }
  }
  return testing::AssertionSuccess();
}

inline bool same_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

inline testing::AssertionResult same_bits(const TestMatrix& a, const TestMatrix& b) {
  for (int64_t t = 0; t < a.rows(); ++t) {
    for (int64_t i = 0; i < a.columns(); ++i) {
      const float x = a.at(t, i), y = b.at(t, i);
      if (!same_bits(&x, &y, 1)) {
        return testing::AssertionFailure() << "[" << t << ", " << i << "]: " << x << " and " << y;
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace headrace
