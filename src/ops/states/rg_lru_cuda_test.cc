// rg_lru on a GPU beside the CPU's.
#include "ops/states/rg_lru.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/states/states_cuda_fixture.h"

namespace headrace::rg_lru_cuda_test {
namespace {

// What the op reads, on the host and on the device.
class LruInputs {
 public:
  LruInputs(TestDevice& cuda, DType dtype, int64_t rows, int64_t channels)
      : rows_(rows), channels_(channels), cuda_(cuda), dtype_(dtype) {}

  RgLruArgs on_host() {
    return {.x = host_view(x_, rows_, channels_),
            .in = host_view(in_, rows_, channels_),
            .forget = host_view(forget_, rows_, channels_),
            .gate = host_view(gate_, rows_, channels_),
            .in_bias = in_bias_.data(),
            .forget_bias = forget_bias_.data(),
            .rate = rate_.data(),
            .states = {},
            .out = {}};
  }
  RgLruArgs on_device() const {
    return {.x = x_on_.view(),
            .in = in_on_.view(),
            .forget = forget_on_.view(),
            .gate = gate_on_.view(),
            .in_bias = in_bias_on_.data(),
            .forget_bias = forget_bias_on_.data(),
            .rate = rate_on_.data(),
            .states = {},
            .out = {}};
  }

 private:
  std::vector<float> rates() {
    std::vector<float> rates = random_floats(rng_, channels_);
    for (float& rate : rates) rate = -std::exp(rate);
    return rates;
  }

  const int64_t rows_, channels_;
  TestDevice& cuda_;
  const DType dtype_;
  Rng rng_{7};
  std::vector<float> x_ = rounded_floats(rng_, dtype_, rows_* channels_);
  std::vector<float> gate_ = rounded_floats(rng_, dtype_, rows_* channels_);
  std::vector<float> in_ = random_floats(rng_, rows_* channels_);
  std::vector<float> forget_ = random_floats(rng_, rows_* channels_);
  std::vector<float> in_bias_ = random_floats(rng_, channels_);
  std::vector<float> forget_bias_ = random_floats(rng_, channels_);
  std::vector<float> rate_ = rates();
  const CudaMatrix x_on_{cuda_, dtype_, rows_, channels_, 5, &x_};
  const CudaMatrix gate_on_{cuda_, dtype_, rows_, channels_, 0, &gate_};
  const CudaMatrix in_on_{cuda_, DType::kF32, rows_, channels_, 3, &in_};
  const CudaMatrix forget_on_{cuda_, DType::kF32, rows_, channels_, 1, &forget_};
  const CudaArray<float> in_bias_on_{cuda_, in_bias_};
  const CudaArray<float> forget_bias_on_{cuda_, forget_bias_};
  const CudaArray<float> rate_on_{cuda_, rate_};
};

void run_lru(TestDevice& cuda, int64_t channels, const StateSteps& steps, DType dtype) {
  const int64_t rows = steps.rows();
  LruInputs inputs(cuda, dtype, rows + 2, channels);
  Rng rng(static_cast<uint64_t>(channels));
  StatesOnBoth states(cuda, rng, rg_lru_state_bytes(channels), steps);
  std::vector<float> expected(static_cast<size_t>((rows + 2) * channels));
  RgLruArgs args = inputs.on_host();
  args.states = states.on_host();
  args.out = host_view(expected, rows + 2, channels);
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  rg_lru(on_cpu, args);
  expected.resize(static_cast<size_t>(rows * channels));

  const CudaMatrix out(cuda, dtype, rows + 2, channels, 7, nullptr);
  args = inputs.on_device();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  rg_lru(context, args);
  const double tolerance = std::max(2 * unit_of(dtype), 1e-4);
  expect_near(rows_of_sequences(out, steps, channels), expected, tolerance, 1e-4);
  states.expect_alike(1e-4);
}

TEST(RgLruCuda, RowsAndStatesAreTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t channels : {5, 64, 600}) {
        SCOPED_TRACE(testing::Message()
                     << channels << " channels, " << steps.rows() << " rows " << dtype_name(dtype));
        run_lru(cuda, channels, steps, dtype);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(RgLruCuda, BitsDependNeitherOnStepsNorOnWhatElseIsInThem) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int32_t kRows = 37;
  constexpr int64_t kChannels = 100;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const LruInputs inputs(cuda, dtype, kRows, kChannels);
    OpContext context = cuda.context();
    expect_cuda_bits_whatever_the_steps(cuda, dtype, kRows, kChannels,
                                        rg_lru_state_bytes(kChannels),
                                        [&](const StateView& states, const TensorView& out) {
                                          RgLruArgs args = inputs.on_device();
                                          args.states = states;
                                          args.out = out;
                                          rg_lru(context, args);
                                        });
  }
}

// As the mixer has them.
TEST(RgLruCuda, ResultsMayLieOverX) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kChannels = 130;
  const StateSteps steps = StateSteps::mixed();
  std::vector<std::vector<float>> results;
  for (const bool over_x : {false, true}) {
    LruInputs inputs(cuda, DType::kBF16, steps.rows(), kChannels);
    Rng rng(5);
    StatesOnBoth states(cuda, rng, rg_lru_state_bytes(kChannels), steps);
    RgLruArgs args = inputs.on_device();
    const std::vector<float> x = rounded_floats(rng, DType::kBF16, steps.rows() * kChannels);
    const CudaMatrix x_on(cuda, DType::kBF16, steps.rows(), kChannels, 5, &x),
        out(cuda, DType::kBF16, steps.rows(), kChannels, 5, nullptr);
    args.x = x_on.view();
    args.states = states.on_device();
    args.out = over_x ? x_on.view() : out.view();
    OpContext context = cuda.context();
    rg_lru(context, args);
    results.push_back(over_x ? x_on.read() : out.read());
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace headrace::rg_lru_cuda_test
