#include "ops/rows/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/op_fixture.h"

namespace headrace::rms_norm_test {
namespace {

// Everything a case needs, the same for every kernel.
struct Case {
  TestMatrix x, residual;
  std::vector<float> weight;

  Case(int64_t rows, int64_t columns, uint64_t seed) : Case(Rng(seed), rows, columns) {}

  TestMatrix run(OpContext context, const Kernel<RmsNormArgs>& kernel, bool adds,
                 TestMatrix& x_after) {
    TestMatrix out(x.rows(), x.columns());
    x_after = x;
    const RmsNormArgs args{.x = x_after.view(),
                           .residual = adds ? ConstTensorView(residual.view()) : ConstTensorView(),
                           .weight = weight.data(),
                           .eps = 1e-5f,
                           .out = out.view()};
    EXPECT_TRUE(kernel.supports(context.device.traits(), args));
    kernel.run(context, args);
    EXPECT_TRUE(out.gaps_untouched() && x_after.gaps_untouched()) << kernel.name;
    return out;
  }

 private:
  Case(Rng rng, int64_t rows, int64_t columns)
      : x(rng, rows, columns), residual(rng, rows, columns), weight(random_floats(rng, columns)) {}
};

std::vector<Kernel<RmsNormArgs>> kernels_of(const Device& device, const RmsNormArgs& args) {
  std::vector<Kernel<RmsNormArgs>> fitting;
  for (const auto& kernel : rms_norm_kernels().all()) {
    if (kernel.supports(device.traits(), args)) fitting.push_back(kernel);
  }
  return fitting;
}

TEST(RmsNorm, EveryCpuKernelAgreesWithTheReference) {
  TestDevice device = TestDevice::cpu(2);
  for (const int64_t columns : {1, 3, 15, 16, 17, 64, 100, 576, 2049}) {
    for (const int64_t rows : {1, 2, 33}) {
      Case data(rows, columns, static_cast<uint64_t>(columns * 100 + rows));
      const RmsNormArgs probe{
          .x = data.x.view(), .residual = {}, .weight = nullptr, .eps = 0, .out = {}};
      const auto kernels = kernels_of(device.device(), probe);
      for (const bool adds : {false, true}) {
        TestMatrix x_expected(rows, columns), x_after(rows, columns);
        const TestMatrix expected = data.run(device.context(), kernels.back(), adds, x_expected);
        for (const auto& kernel : kernels) {
          SCOPED_TRACE((std::string(kernel.name) + " " + Shape{rows, columns}.to_string()));
          const TestMatrix out = data.run(device.context(), kernel, adds, x_after);
          EXPECT_TRUE(all_close(out, expected, 1e-6, 2e-6));
          EXPECT_TRUE(same_bits(x_after, x_expected));
        }
      }
    }
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsBatch) {
  TestDevice device = TestDevice::cpu(2);
  Case data(40, 576, 7);
  TestMatrix out(40, 576), alone(40, 576);
  OpContext context = device.context();
  rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, out.view()});
  for (int64_t t = 0; t < 40; ++t) {
    rms_norm(context, {data.x.view().row_range(t, 1),
                       {},
                       data.weight.data(),
                       1e-5f,
                       alone.view().row_range(t, 1)});
  }
  EXPECT_TRUE(same_bits(out, alone));
}

// Heads of a row, each of which is as a row of its own would be.
TEST(RmsNorm, GroupsOfColumnsAreNormalisedByThemselves) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  constexpr int64_t kRows = 20, kGroups = 5, kColumns = 24;
  const Case data(kRows, kGroups * kColumns, 8);
  for (const auto& kernel : rms_norm_kernels().all()) {
    TestMatrix x = data.x, out(kRows, x.columns()), alone(kRows, x.columns());
    RmsNormArgs args{.x = x.view(),
                     .residual = {},
                     .weight = data.weight.data(),
                     .eps = 1e-5f,
                     .out = out.view(),
                     .groups = kGroups};
    if (!kernel.supports(device.device().traits(), args)) continue;
    SCOPED_TRACE(kernel.name);
    kernel.run(context, args);
    args.groups = 1;
    const auto columns_of = [&](TestMatrix& all, int64_t group) {
      return TensorView(all.view().data + group * kColumns * int64_t{sizeof(float)}, DType::kF32,
                        Shape{kRows, kColumns}, all.view().row_stride);
    };
    for (int64_t g = 0; g < kGroups; ++g) {
      args.x = columns_of(x, g);
      args.out = columns_of(alone, g);
      kernel.run(context, args);
    }
    EXPECT_TRUE(same_bits(out, alone));
    EXPECT_TRUE(out.gaps_untouched());
  }
}

TEST(RmsNorm, WorksInPlace) {
  TestDevice device = TestDevice::cpu(1);
  Case data(3, 100, 8);
  TestMatrix out(3, 100);
  OpContext context = device.context();
  rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, out.view()});
  rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, data.x.view()});
  EXPECT_TRUE(same_bits(data.x, out));
}

// --- CUDA: runs where there is a GPU ---

struct CudaCase {
  DType dtype;
  int64_t rows, columns, gap;
  bool adds;
};

// What the CPU reference gives for the same (rounded) inputs: x afterwards, and the result.
struct Expected {
  std::vector<float> x, out;
};
Expected expect(const CudaCase& c, std::vector<float> x, const std::vector<float>& residual,
                const std::vector<float>& weight) {
  if (c.adds) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += residual[i];
    x = decode(c.dtype, encode(c.dtype, x));
  }
  TestDevice cpu = TestDevice::cpu(1);
  std::vector<float> out(x.size());
  const auto view = [&](std::vector<float>& v) { return host_view(v, c.rows, c.columns); };
  OpContext context = cpu.context();
  rms_norm_kernels().all().back().run(context, {view(x), {}, weight.data(), 1e-5f, view(out)});
  return {x, out};
}

void run_cuda_case(TestDevice& cuda, const CudaCase& c) {
  Rng rng(static_cast<uint64_t>(c.rows * 10000 + c.columns));
  const auto rounded = [&] { return rounded_floats(rng, c.dtype, c.rows * c.columns); };
  const std::vector<float> x = rounded(), residual = rounded();
  const std::vector<float> weight = random_floats(rng, c.columns);
  const Expected expected = expect(c, x, residual, weight);
  const double relative = unit_of(c.dtype);
  for (const auto& kernel : rms_norm_kernels().all()) {
    CudaMatrix x_on(cuda, c.dtype, c.rows, c.columns, c.gap, &x);
    CudaMatrix residual_on(cuda, c.dtype, c.rows, c.columns, c.gap, &residual);
    CudaMatrix weight_on(cuda, DType::kF32, 1, c.columns, 0, &weight);
    CudaMatrix out_on(cuda, c.dtype, c.rows, c.columns, c.gap, nullptr);
    const RmsNormArgs args{
        .x = x_on.view(),
        .residual = c.adds ? ConstTensorView(residual_on.view()) : ConstTensorView(),
        .weight = reinterpret_cast<const float*>(weight_on.view().data),
        .eps = 1e-5f,
        .out = out_on.view()};
    if (!kernel.supports(cuda.device().traits(), args)) continue;
    SCOPED_TRACE((std::string(kernel.name) + " " + std::string(dtype_name(c.dtype)) + " " +
                  Shape{c.rows, c.columns}.to_string()));
    OpContext context = cuda.context();
    kernel.run(context, args);
    expect_near(out_on.read(), expected.out, relative);
    expect_near(x_on.read(), expected.x, relative);
  }
}

TEST(RmsNorm, EveryCudaKernelAgreesWithTheReference) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t columns : {1, 7, 64, 100, 576, 1000, 2048, 4096, 8192, 9000, 16384}) {
      for (const int64_t rows : {1, 3, 130}) {
        for (const int64_t gap : {0, 3, 8}) {
          for (const bool adds : {false, true})
            run_cuda_case(cuda, {dtype, rows, columns, gap, adds});
        }
      }
    }
  }
}

TEST(RmsNorm, EveryCudaKernelNormalisesGroups) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t group : {1, 12, 64, 256, 512}) {
      for (const int32_t groups : {1, 3, 16}) {
        for (const int64_t gap : {0, 3, 8}) {
          constexpr int64_t kRows = 5;
          const int64_t columns = group * groups;
          Rng rng(static_cast<uint64_t>(columns));
          const std::vector<float> start = rounded_floats(rng, dtype, kRows * columns);
          const std::vector<float> weight = random_floats(rng, group);
          const CudaArray<float> weight_on(cuda, weight);
          std::vector<float> expected = start;
          RmsNormArgs args{.x = host_view(expected, kRows, columns),
                           .residual = {},
                           .weight = weight.data(),
                           .eps = 1e-5f,
                           .out = host_view(expected, kRows, columns),
                           .groups = groups};
          OpContext reference = cpu.context(), context = cuda.context();
          rms_norm_kernels().all().back().run(reference, args);
          args.weight = weight_on.data();
          for (const auto& kernel : rms_norm_kernels().all()) {
            CudaMatrix x(cuda, dtype, kRows, columns, gap, &start);
            args.x = args.out = x.view();
            if (!kernel.supports(cuda.device().traits(), args)) continue;
            SCOPED_TRACE(std::string(kernel.name) + " " + std::string(dtype_name(dtype)));
            kernel.run(context, args);
            expect_near(x.read(), expected, unit_of(dtype), 1e-5);
          }
        }
      }
    }
  }
}

TEST(RmsNormDeathTest, NamesAShapeThatDoesNotFit) {
  TestDevice device = TestDevice::cpu(1);
  Case data(3, 100, 9);
  TestMatrix out(3, 99);
  OpContext context = device.context();
  EXPECT_DEATH(rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, out.view()}),
               "args.out.shape == args.x.shape");
}

}  // namespace
}  // namespace headrace::rms_norm_test
