// token_shift on a GPU beside the CPU's.
#include "ops/states/token_shift.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/states/states_cuda_fixture.h"

namespace headrace::token_shift_cuda_test {
namespace {

void run_shift(TestDevice& cuda, int32_t mixes, int64_t columns, const StateSteps& steps,
               DType dtype) {
  Rng rng(static_cast<uint64_t>(columns));
  const int64_t rows = steps.rows();
  std::vector<float> x = rounded_floats(rng, dtype, (rows + 2) * columns);
  const std::vector<float> mix = random_floats(rng, mixes * columns);
  StatesOnBoth states(cuda, rng, token_shift_state_bytes(columns), steps);
  std::vector<float> expected(static_cast<size_t>((rows + 2) * mixes * columns));
  TokenShiftArgs args{.x = host_view(x, rows + 2, columns),
                      .mix = mix.data(),
                      .mixes = mixes,
                      .states = states.on_host(),
                      .out = host_view(expected, rows + 2, mixes * columns)};
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  token_shift(on_cpu, args);

  const CudaMatrix x_on(cuda, dtype, rows + 2, columns, 5, &x),
      out(cuda, dtype, rows + 2, mixes * columns, 7, nullptr);
  const CudaArray<float> mix_on(cuda, mix);
  args.x = x_on.view();
  args.mix = mix_on.data();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  token_shift(context, args);
  expected.resize(static_cast<size_t>(rows * mixes * columns));
  expect_near(rows_of_sequences(out, steps, mixes * columns), expected, unit_of(dtype), 5e-6);
  states.expect_alike(0);
}

TEST(TokenShiftCuda, RowsAndStatesAreTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << steps.rows() << " rows " << dtype_name(dtype));
      run_shift(cuda, 6, 320, steps, dtype);
      run_shift(cuda, 1, 37, steps, dtype);
      run_shift(cuda, 3, 128, steps, dtype);
    }
  }
}

TEST(TokenShiftCuda, BitsDependNeitherOnStepsNorOnWhatElseIsInThem) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int32_t kRows = 37, kMixes = 6;
  constexpr int64_t kColumns = 150;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    Rng rng(3);
    const std::vector<float> x = rounded_floats(rng, dtype, kRows * kColumns);
    const CudaMatrix x_on(cuda, dtype, kRows, kColumns, 5, &x);
    const CudaArray<float> mix(cuda, random_floats(rng, kMixes * kColumns));
    OpContext context = cuda.context();
    expect_cuda_bits_whatever_the_steps(
        cuda, dtype, kRows, kMixes * kColumns, token_shift_state_bytes(kColumns),
        [&](const StateView& states, const TensorView& out) {
          token_shift(
              context,
              {.x = x_on.view(), .mix = mix.data(), .mixes = kMixes, .states = states, .out = out});
        });
  }
}

}  // namespace
}  // namespace headrace::token_shift_cuda_test
