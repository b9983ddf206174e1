// One NaN in one row of x: every other row of the results has the bits that it has without it, for
// every CUDA kernel of the ops that go over rows, and the row itself is NaN. (Attention and
// sampling have tests of their own.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"

namespace headrace::nan_rows_cuda_test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kColumns = 256;

class NanRowsCuda : public testing::Test {
 protected:
  void SetUp() override {
    device_ = cuda_test_device();
    if (!device_) GTEST_SKIP() << "not run: there is no GPU";
  }
  TestDevice& device() { return *device_; }

  // make(x, out) gives the arguments of every kernel.
  template <class Args, class Make>
  void expect_all(const KernelSet<Args>& kernels, DType dtype, int64_t rows, int64_t columns,
                  int64_t out_columns, const Make& make) {
    const std::vector<float> clean = rounded_floats(rng_, dtype, rows * columns);
    const int64_t bad = rows / 2;
    std::vector<float> faulty = clean;
    faulty[static_cast<size_t>(bad * columns + columns / 3)] = std::nanf("");
    for (const auto& kernel : kernels.all()) {
      std::vector<std::vector<float>> results;
      for (const auto* values : {&clean, static_cast<const std::vector<float>*>(&faulty)}) {
        const CudaMatrix x(device(), dtype, rows, columns, 0, values);
        const CudaMatrix out(device(), dtype, rows, out_columns, 0, nullptr);
        const Args args = make(x.view(), out.view());
        if (!kernel.supports(device().device().traits(), args)) break;
        OpContext context = device().context();
        kernel.run(context, args);
        results.push_back(out.read());
      }
      if (results.empty()) continue;
      SCOPED_TRACE(std::string(kernel.name) + " " + std::string(dtype_name(dtype)));
      int64_t nans = 0;
      for (int64_t i = 0; i < rows * out_columns; ++i) {
        const float want = results[0][static_cast<size_t>(i)],
                    got = results[1][static_cast<size_t>(i)];
        if (i / out_columns == bad) {
          nans += std::isnan(got) ? 1 : 0;
        } else {
          ASSERT_EQ(std::memcmp(&want, &got, sizeof got), 0) << "row " << i / out_columns;
        }
      }
      EXPECT_GT(nans, 0);
    }
  }

  std::optional<TestDevice> device_;
  Rng rng_{3};
};

TEST_F(NanRowsCuda, Linear) {
  constexpr int64_t kN = 192;
  for (const DType dtype : kTypes) {
    std::vector<float> w = rounded_floats(rng_, dtype, kN * kColumns);
    const LinearSource source{host_view(w, kN, kColumns), {}};
    const LinearCompute compute = dtype == DType::kF32   ? LinearCompute::kFloat32
                                  : dtype == DType::kF16 ? LinearCompute::kFloat16
                                                         : LinearCompute::kFast;
    const LinearWeight weight =
        std::move(LinearWeight::pack(device().device(), {&source, 1}, compute).value());
    for (const int64_t rows : {3, 8, 33, 200}) {
      expect_all(linear_kernels(), dtype, rows, kColumns, kN, [&](TensorView x, TensorView out) {
        return LinearArgs{.x = x, .weight = &weight, .bias = nullptr, .y = out};
      });
    }
  }
}

TEST_F(NanRowsCuda, Norms) {
  const CudaArray<float> weight(device(), random_floats(rng_, kColumns));
  for (const DType dtype : kTypes) {
    expect_all(rms_norm_kernels(), dtype, 7, kColumns, kColumns, [&](TensorView x, TensorView out) {
      return RmsNormArgs{.x = x, .residual = {}, .weight = weight.data(), .eps = 1e-5f, .out = out};
    });
    expect_all(layer_norm_kernels(), dtype, 7, kColumns, kColumns,
               [&](TensorView x, TensorView out) {
                 return LayerNormArgs{.x = x,
                                      .residual = {},
                                      .weight = weight.data(),
                                      .bias = weight.data(),
                                      .eps = 1e-5f,
                                      .out = out};
               });
  }
}

TEST_F(NanRowsCuda, Activations) {
  for (const DType dtype : kTypes) {
    expect_all(gated_activation_kernels(), dtype, 7, 2 * kColumns, kColumns,
               [&](TensorView x, TensorView out) {
                 return GatedActivationArgs{x, Activation::kSilu, out};
               });
    expect_all(activation_kernels(), dtype, 7, kColumns, kColumns,
               [&](TensorView x, TensorView out) {
                 return ActivationArgs{x, Activation::kGeluTanh, out};
               });
  }
}

}  // namespace
}  // namespace headrace::nan_rows_cuda_test
