#include "ops/linear/head_linear.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/cuda_fixture.h"

namespace headrace::head_linear_cuda_test {
namespace {

struct HeadCase {
  DType dtype;
  int32_t heads;
  int64_t rows, n, k, x_step, y_step;
};

LinearWeight packed_for(Device& device, std::vector<float>& values, int64_t k, DType dtype) {
  LinearCompute compute = LinearCompute::kFloat32;
  if (dtype == DType::kBF16) compute = LinearCompute::kFast;
  if (dtype == DType::kF16) compute = LinearCompute::kFloat16;
  const LinearSource source{host_view(values, std::ssize(values) / k, k), {}};
  return std::move(LinearWeight::pack(device, {&source, 1}, compute).value());
}

void run_case(TestDevice& cuda, const HeadCase& c) {
  Rng rng(5);
  std::vector<float> x = rounded_floats(rng, c.dtype, c.rows * c.heads * c.x_step);
  std::vector<float> weights = rounded_floats(rng, c.dtype, c.heads * c.n * c.k, 0.5f);
  // What is not written stays.
  std::vector<float> expected = rounded_floats(rng, c.dtype, c.rows * c.heads * c.y_step);
  std::vector<float> before = expected;
  TestDevice cpu = TestDevice::cpu(1);
  OpContext on_cpu = cpu.context();
  const LinearWeight plain = packed_for(cpu.device(), weights, c.k, DType::kF32);
  head_linear(on_cpu, {.heads = c.heads,
                       .x = host_view(x, c.rows, c.heads * c.x_step),
                       .weight = &plain,
                       .y = host_view(expected, c.rows, c.heads * c.y_step)});
  const LinearWeight weight = packed_for(cuda.device(), weights, c.k, c.dtype);
  const CudaMatrix x_on(cuda, c.dtype, c.rows, c.heads * c.x_step, 8, &x);
  int ran = 0;
  for (const auto& kernel : head_linear_kernels().all()) {
    const CudaMatrix y(cuda, c.dtype, c.rows, c.heads * c.y_step, 8, &before);
    const HeadLinearArgs args{.heads = c.heads, .x = x_on.view(), .weight = &weight, .y = y.view()};
    if (!kernel.supports(cuda.device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name));
    OpContext context = cuda.context();
    kernel.run(context, args);
    const double sums = 0.5 * std::sqrt(static_cast<double>(c.k));
    expect_near(y.read(), expected, 2 * unit_of(c.dtype), 8e-6 * sums + 1e-5);
    ++ran;
  }
  EXPECT_GE(ran, 1);
}

TEST(HeadLinearCuda, EveryKernelIsThePlainLoops) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const HeadCase& c : std::vector<HeadCase>{{DType::kBF16, 16, 1, 512, 128, 192, 576},
                                                 {DType::kBF16, 16, 33, 512, 128, 192, 576},
                                                 {DType::kF16, 20, 17, 128, 512, 512, 128},
                                                 {DType::kBF16, 3, 130, 40, 48, 50, 44},
                                                 {DType::kBF16, 2, 5, 33, 24, 24, 33},
                                                 {DType::kF32, 4, 9, 16, 12, 20, 24}}) {
    SCOPED_TRACE(testing::Message() << dtype_name(c.dtype) << " " << c.heads << " heads of " << c.n
                                    << " x " << c.k << ", " << c.rows << " rows");
    run_case(cuda, c);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace headrace::head_linear_cuda_test
