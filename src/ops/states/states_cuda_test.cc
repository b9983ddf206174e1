// causal_conv, the delta rules and the selective scans on a GPU beside the CPU's: sequences that
// begin and that go on, of one row and of several tiles of rows, with states saved on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/states/causal_conv.h"
#include "ops/states/delta_rule.h"
#include "ops/states/kimi_delta.h"
#include "ops/states/selective_scan.h"
#include "ops/states/ssd_scan.h"
#include "ops/states/states_cuda_fixture.h"

namespace headrace::states_cuda_test {
namespace {

struct ConvCase {
  int32_t taps;
  int64_t channels;
  bool gates, bias;
  ConvActivation activation;
};

void run_conv(TestDevice& cuda, const ConvCase& c, const StateSteps& steps, DType dtype) {
  Rng rng(static_cast<uint64_t>(c.taps));
  const int64_t rows = steps.rows();
  std::vector<float> x = rounded_floats(rng, dtype, rows * c.channels);
  std::vector<float> before = rounded_floats(rng, dtype, rows * c.channels);
  std::vector<float> behind = rounded_floats(rng, dtype, rows * c.channels);
  const std::vector<float> weight = random_floats(rng, c.taps * c.channels);
  const std::vector<float> bias = random_floats(rng, c.channels);
  StatesOnBoth states(cuda, rng, causal_conv_state_bytes(c.taps, c.channels), steps);
  std::vector<float> expected(static_cast<size_t>(rows * c.channels));
  const auto gate = [&](std::vector<float>& values) {
    return c.gates ? ConstTensorView(host_view(values, rows, c.channels)) : ConstTensorView();
  };
  CausalConvArgs args{.x = host_view(x, rows, c.channels),
                      .before = gate(before),
                      .behind = gate(behind),
                      .weight = weight.data(),
                      .bias = c.bias ? bias.data() : nullptr,
                      .taps = c.taps,
                      .activation = c.activation,
                      .states = states.on_host(),
                      .out = host_view(expected, rows, c.channels)};
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  causal_conv(on_cpu, args);

  const CudaMatrix x_on(cuda, dtype, rows, c.channels, 5, &x),
      before_on(cuda, dtype, rows, c.channels, 3, &before),
      behind_on(cuda, dtype, rows, c.channels, 0, &behind),
      out(cuda, dtype, rows, c.channels, 7, nullptr);
  const CudaArray<float> weight_on(cuda, weight), bias_on(cuda, bias);
  args.x = x_on.view();
  if (c.gates) args.before = before_on.view();
  if (c.gates) args.behind = behind_on.view();
  args.weight = weight_on.data();
  if (c.bias) args.bias = bias_on.data();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  causal_conv(context, args);
  expect_near(out.read(), expected, 2 * unit_of(dtype), 1e-4);
  states.expect_alike(1e-5);
}

TEST(StatesCuda, ConvolutionsAreTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << steps.rows() << " rows " << dtype_name(dtype));
      run_conv(cuda, {3, 40, true, false, ConvActivation::kNone}, steps, dtype);
      run_conv(cuda, {4, 600, false, false, ConvActivation::kSilu}, steps, dtype);
      run_conv(cuda, {2, 128, false, true, ConvActivation::kSilu}, steps, dtype);
      run_conv(cuda, {5, 72, true, false, ConvActivation::kNone}, steps, dtype);
      run_conv(cuda, {8, 24, true, true, ConvActivation::kSilu}, steps, dtype);
    }
  }
}

void run_delta(TestDevice& cuda, const DeltaHeads& heads, const StateSteps& steps, DType dtype,
               float beta_scale = 1, bool sigmoid_gates = false) {
  Rng rng(static_cast<uint64_t>(heads.key_dim));
  const int64_t rows = steps.rows();
  std::vector<float> qkv = rounded_floats(rng, dtype, rows * heads.qkv());
  std::vector<float> gates = random_floats(rng, rows * 2 * heads.value_heads);
  std::vector<float> z = rounded_floats(rng, dtype, rows * heads.values());
  std::vector<float> rate = random_floats(rng, heads.value_heads);
  for (float& value : rate) value = -std::exp(value);
  const std::vector<float> dt_bias = random_floats(rng, heads.value_heads);
  const std::vector<float> norm = random_floats(rng, heads.value_dim);
  StatesOnBoth states(cuda, rng, heads.state_bytes(), steps);
  const CudaMatrix qkv_on(cuda, dtype, rows, heads.qkv(), 8, &qkv),
      gates_on(cuda, DType::kF32, rows, 2 * heads.value_heads, 1, &gates),
      z_on(cuda, dtype, rows, heads.values(), 0, &z),
      out(cuda, dtype, rows, heads.values(), 6, nullptr);
  const CudaArray<float> rate_on(cuda, rate), dt_bias_on(cuda, dt_bias), norm_on(cuda, norm);

  std::vector<float> expected(static_cast<size_t>(rows * heads.values()));
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  DeltaRuleArgs args{.heads = heads,
                     .qkv = host_view(qkv, rows, heads.qkv()),
                     .gates = host_view(gates, rows, 2 * heads.value_heads),
                     .z = host_view(z, rows, heads.values()),
                     .rate = rate.data(),
                     .dt_bias = dt_bias.data(),
                     .norm = norm.data(),
                     .norm_eps = 1e-6f,
                     .sigmoid_gates = sigmoid_gates,
                     .beta_scale = beta_scale,
                     .states = states.on_host(),
                     .out = host_view(expected, rows, heads.values())};
  delta_rule(on_cpu, args);

  args.qkv = qkv_on.view();
  args.gates = gates_on.view();
  args.z = z_on.view();
  args.rate = rate_on.data();
  args.dt_bias = dt_bias_on.data();
  args.norm = norm_on.data();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  delta_rule(context, args);
  // What is read is rounded once, before it is normed.
  const double tolerance = dtype == DType::kF32 ? 1e-4 : 4 * unit_of(dtype);
  expect_near(out.read(), expected, tolerance, tolerance);
  states.expect_alike(1e-4);
}

TEST(StatesCuda, TheDeltaRuleIsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const DeltaHeads& heads : std::vector<DeltaHeads>{
               {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 32},
               {.key_heads = 1, .value_heads = 1, .key_dim = 24, .value_dim = 40},
               {.key_heads = 2, .value_heads = 2, .key_dim = 8, .value_dim = 12},
               {.key_heads = 1, .value_heads = 3, .key_dim = 128, .value_dim = 128},
               {.key_heads = 1, .value_heads = 2, .key_dim = 256, .value_dim = 64},
               {.key_heads = 2, .value_heads = 6, .key_dim = 16, .value_dim = 32, .tiled = true}}) {
        SCOPED_TRACE(testing::Message() << heads.value_heads << " heads of " << heads.key_dim
                                        << ", " << steps.rows() << " rows " << dtype_name(dtype));
        run_delta(cuda, heads, steps, dtype);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Of negative eigenvalues: rates of learning up to 2. Gates may be sigmoids.
TEST(StatesCuda, TheDeltaRuleOfDoubledRatesIsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr DeltaHeads kHeads{.key_heads = 2, .value_heads = 4, .key_dim = 96, .value_dim = 40};
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << steps.rows() << " rows " << dtype_name(dtype));
      run_delta(cuda, kHeads, steps, dtype, /*beta_scale=*/2);
      run_delta(cuda, kHeads, steps, dtype, /*beta_scale=*/1, /*sigmoid_gates=*/true);
    }
  }
}

void run_kimi(TestDevice& cuda, const KimiDeltaHeads& heads, const StateSteps& steps, DType dtype,
              float decay_floor) {
  Rng rng(static_cast<uint64_t>(heads.dim));
  const int64_t rows = steps.rows(), columns = heads.columns();
  std::vector<float> qkv = rounded_floats(rng, dtype, rows * 3 * columns);
  std::vector<float> forget = random_floats(rng, rows * columns);
  std::vector<float> beta = random_floats(rng, rows * heads.count);
  std::vector<float> z = rounded_floats(rng, dtype, rows * columns);
  std::vector<float> rate = random_floats(rng, heads.count);
  for (float& value : rate) value = -std::exp(value);
  const std::vector<float> dt_bias = random_floats(rng, columns);
  const std::vector<float> norm = random_floats(rng, heads.dim);
  StatesOnBoth states(cuda, rng, heads.state_bytes(), steps);
  const CudaMatrix qkv_on(cuda, dtype, rows, 3 * columns, 8, &qkv),
      forget_on(cuda, DType::kF32, rows, columns, 1, &forget),
      beta_on(cuda, DType::kF32, rows, heads.count, 5, &beta),
      z_on(cuda, dtype, rows, columns, 0, &z), out(cuda, dtype, rows, columns, 6, nullptr);
  const CudaArray<float> rate_on(cuda, rate), dt_bias_on(cuda, dt_bias), norm_on(cuda, norm);

  std::vector<float> expected(static_cast<size_t>(rows * columns));
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  KimiDeltaArgs args{.heads = heads,
                     .qkv = host_view(qkv, rows, 3 * columns),
                     .forget = host_view(forget, rows, columns),
                     .beta = host_view(beta, rows, heads.count),
                     .z = host_view(z, rows, columns),
                     .rate = rate.data(),
                     .dt_bias = dt_bias.data(),
                     .norm = norm.data(),
                     .norm_eps = 1e-6f,
                     .decay_floor = decay_floor,
                     .states = states.on_host(),
                     .out = host_view(expected, rows, columns)};
  kimi_delta(on_cpu, args);

  args.qkv = qkv_on.view();
  args.forget = forget_on.view();
  args.beta = beta_on.view();
  args.z = z_on.view();
  args.rate = rate_on.data();
  args.dt_bias = dt_bias_on.data();
  args.norm = norm_on.data();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  kimi_delta(context, args);
  // As run_delta's.
  const double tolerance = dtype == DType::kF32 ? 1e-4 : 4 * unit_of(dtype);
  expect_near(out.read(), expected, tolerance, tolerance);
  states.expect_alike(1e-4);
}

TEST(StatesCuda, KimiDeltaAttentionIsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const KimiDeltaHeads& heads : std::vector<KimiDeltaHeads>{{.count = 2, .dim = 32},
                                                                     {.count = 1, .dim = 40},
                                                                     {.count = 3, .dim = 12},
                                                                     {.count = 2, .dim = 128},
                                                                     {.count = 1, .dim = 130},
                                                                     {.count = 1, .dim = 256}}) {
        SCOPED_TRACE(testing::Message() << heads.count << " heads of " << heads.dim << ", "
                                        << steps.rows() << " rows " << dtype_name(dtype));
        for (const float decay_floor : {0.0f, -3.0f}) {
          run_kimi(cuda, heads, steps, dtype, decay_floor);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

constexpr TimeStepRule kClampedSteps{.scale = 1.5f, .min = 0.1f, .max = 2.0f};

void run_ssd(TestDevice& cuda, const SsdHeads& heads, const StateSteps& steps, DType dtype,
             const TimeStepRule& rule = kClampedSteps) {
  Rng rng(static_cast<uint64_t>(heads.state_dim));
  const int64_t rows = steps.rows();
  std::vector<float> xbc = rounded_floats(rng, dtype, rows * heads.xbc());
  std::vector<float> dt = random_floats(rng, rows * 2 * heads.heads);
  if (rule.is_constant()) std::ranges::fill(dt, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> rate = random_floats(rng, heads.heads);
  for (float& value : rate) value = -std::exp(value);
  const std::vector<float> dt_bias = random_floats(rng, heads.heads);
  const std::vector<float> skip = random_floats(rng, heads.heads);
  StatesOnBoth states(cuda, rng, heads.state_bytes(), steps);
  const CudaMatrix xbc_on(cuda, dtype, rows, heads.xbc(), 8, &xbc),
      dt_on(cuda, DType::kF32, rows, 2 * heads.heads, 1, &dt),
      out(cuda, dtype, rows, heads.values(), 6, nullptr);
  const CudaArray<float> rate_on(cuda, rate), dt_bias_on(cuda, dt_bias), skip_on(cuda, skip);

  std::vector<float> expected(static_cast<size_t>(rows * heads.values()));
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  SsdScanArgs args{.heads = heads,
                   .xbc = host_view(xbc, rows, heads.xbc()),
                   .dt = host_view(dt, rows, 2 * heads.heads),
                   .rate = rate.data(),
                   .dt_bias = dt_bias.data(),
                   .skip = skip.data(),
                   .time_step = rule,
                   .states = states.on_host(),
                   .out = host_view(expected, rows, heads.values())};
  ssd_scan(on_cpu, args);

  args.xbc = xbc_on.view();
  args.dt = dt_on.view();
  args.rate = rate_on.data();
  args.dt_bias = dt_bias_on.data();
  args.skip = skip_on.data();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  ssd_scan(context, args);
  expect_near(out.read(), expected, std::max(2 * unit_of(dtype), 1e-4), 2e-4);
  states.expect_alike(1e-4);
}

TEST(StatesCuda, TheSelectiveScanOfMamba2IsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const SsdHeads& heads :
           std::vector<SsdHeads>{{.heads = 4, .head_dim = 32, .groups = 2, .state_dim = 16},
                                 {.heads = 1, .head_dim = 40, .groups = 1, .state_dim = 25},
                                 {.heads = 2, .head_dim = 12, .groups = 2, .state_dim = 8},
                                 {.heads = 3, .head_dim = 64, .groups = 1, .state_dim = 128},
                                 {.heads = 2, .head_dim = 64, .groups = 1, .state_dim = 256}}) {
        SCOPED_TRACE(testing::Message() << heads.heads << " heads of " << heads.state_dim << ", "
                                        << steps.rows() << " rows " << dtype_name(dtype));
        run_ssd(cuda, heads, steps, dtype);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// As lightning attention has it: as many groups as heads, steps of 1 whatever dt holds.
TEST(StatesCuda, ConstantTimeStepsAreNotRead) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int32_t dim : {16, 40, 128}) {
        SCOPED_TRACE(testing::Message()
                     << dim << ", " << steps.rows() << " rows " << dtype_name(dtype));
        const SsdHeads heads{.heads = 2, .head_dim = dim, .groups = 2, .state_dim = dim};
        run_ssd(cuda, heads, steps, dtype, {.min = 1.0f, .max = 1.0f});
      }
    }
  }
}

void run_scan(TestDevice& cuda, int32_t state_dim, int64_t channels, const StateSteps& steps,
              DType dtype) {
  Rng rng(static_cast<uint64_t>(channels));
  const int64_t rows = steps.rows();
  std::vector<float> x = rounded_floats(rng, dtype, rows * channels);
  std::vector<float> z = rounded_floats(rng, dtype, rows * channels);
  std::vector<float> dt = random_floats(rng, rows * channels);
  std::vector<float> b = random_floats(rng, rows * state_dim);
  std::vector<float> c = random_floats(rng, rows * state_dim);
  std::vector<float> rate = random_floats(rng, state_dim * channels);
  for (float& value : rate) value = -std::exp(value);
  const std::vector<float> dt_bias = random_floats(rng, channels);
  const std::vector<float> skip = random_floats(rng, channels);
  StatesOnBoth states(cuda, rng, selective_scan_state_bytes(state_dim, channels), steps);
  std::vector<float> expected(static_cast<size_t>(rows * channels));
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  SelectiveScanArgs args{.state_dim = state_dim,
                         .x = host_view(x, rows, channels),
                         .z = host_view(z, rows, channels),
                         .dt = host_view(dt, rows, channels),
                         .b = host_view(b, rows, state_dim),
                         .c = host_view(c, rows, state_dim),
                         .rate = rate.data(),
                         .dt_bias = dt_bias.data(),
                         .skip = skip.data(),
                         .states = states.on_host(),
                         .out = host_view(expected, rows, channels)};
  selective_scan(on_cpu, args);

  const CudaMatrix x_on(cuda, dtype, rows, channels, 8, &x),
      z_on(cuda, dtype, rows, channels, 0, &z), dt_on(cuda, DType::kF32, rows, channels, 0, &dt),
      b_on(cuda, DType::kF32, rows, state_dim, 3, &b),
      c_on(cuda, DType::kF32, rows, state_dim, 3, &c), out(cuda, dtype, rows, channels, 6, nullptr);
  const CudaArray<float> rate_on(cuda, rate), dt_bias_on(cuda, dt_bias), skip_on(cuda, skip);
  args.x = x_on.view();
  args.z = z_on.view();
  args.dt = dt_on.view();
  args.b = b_on.view();
  args.c = c_on.view();
  args.rate = rate_on.data();
  args.dt_bias = dt_bias_on.data();
  args.skip = skip_on.data();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  selective_scan(context, args);
  expect_near(out.read(), expected, std::max(2 * unit_of(dtype), 1e-4), 2e-4);
  states.expect_alike(1e-4);
}

TEST(StatesCuda, TheSelectiveScanIsTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const auto& [state_dim, channels] :
           {std::pair<int32_t, int64_t>{16, 320}, {5, 40}, {33, 100}, {64, 64}}) {
        SCOPED_TRACE(testing::Message() << channels << " channels of " << state_dim << ", "
                                        << steps.rows() << " rows " << dtype_name(dtype));
        run_scan(cuda, state_dim, channels, steps, dtype);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::states_cuda_test
