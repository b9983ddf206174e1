// wkv7 on a GPU beside the CPU's.
#include "ops/states/wkv7.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ops/states/states_cuda_fixture.h"

namespace headrace::wkv7_cuda_test {
namespace {

constexpr float kEps = 64e-5f;

struct WkvCase {
  Wkv7Heads heads;
  bool first = false;  // of the layers
};

// What the op reads, on the host and on the device.
class WkvInputs {
 public:
  WkvInputs(TestDevice& cuda, const WkvCase& of, DType dtype, int64_t rows)
      : of_(of), rows_count_(rows) {
    Rng rng(static_cast<uint64_t>(of.heads.head_dim));
    for (size_t i = 0; i < kRowsOf; ++i) {
      const DType of_rows = i == kW || i == kA ? DType::kF32 : dtype;
      rows_.push_back(rounded_floats(rng, of_rows, rows * of.heads.channels()));
      const auto gap = static_cast<int64_t>(i);
      rows_on_.emplace_back(cuda, of_rows, rows, of.heads.channels(), gap, &rows_.back());
    }
    for (size_t i = 0; i < kVectors; ++i) {
      vectors_.push_back(random_floats(rng, of.heads.channels()));
      vectors_on_.emplace_back(cuda, vectors_.back());
    }
  }

  Wkv7Args on_host() {
    return args([&](size_t i) { return host_view(rows_[i], rows_count_, of_.heads.channels()); },
                [&](size_t i) { return vectors_[i].data(); });
  }
  Wkv7Args on_device() const {
    return args([&](size_t i) { return rows_on_[i].view(); },
                [&](size_t i) { return vectors_on_[i].data(); });
  }
  const CudaMatrix& r_on_device() const { return rows_on_[kR]; }

 private:
  enum Rows : size_t { kR, kW, kK, kV, kA, kG, kVFirst, kVGate, kRowsOf };
  static constexpr size_t kVectors = 8;

  template <class OfRows, class OfVectors>
  Wkv7Args args(const OfRows& rows, const OfVectors& vector) const {
    Wkv7Args args{.heads = of_.heads,
                  .r = rows(kR),
                  .w = rows(kW),
                  .k = rows(kK),
                  .v = rows(kV),
                  .a = rows(kA),
                  .g = rows(kG),
                  .v_first = {},
                  .v_gate = {},
                  .w0 = vector(0),
                  .a0 = vector(1),
                  .v0 = of_.first ? nullptr : vector(2),
                  .k_k = vector(3),
                  .k_a = vector(4),
                  .r_k = vector(5),
                  .norm = vector(6),
                  .norm_bias = vector(7),
                  .norm_eps = kEps,
                  .states = {},
                  .out = {}};
    if (of_.first) return args;
    args.v_first = rows(kVFirst);
    args.v_gate = rows(kVGate);
    return args;
  }

  const WkvCase of_;
  const int64_t rows_count_;
  std::vector<std::vector<float>> rows_, vectors_;
  std::vector<CudaMatrix> rows_on_;
  std::vector<CudaArray<float>> vectors_on_;
};

void run_wkv(TestDevice& cuda, const WkvCase& of, const StateSteps& steps, DType dtype) {
  const int64_t rows = steps.rows(), channels = of.heads.channels();
  WkvInputs inputs(cuda, of, dtype, rows + 2);
  Rng rng(3);
  StatesOnBoth states(cuda, rng, of.heads.state_bytes(), steps);
  std::vector<float> expected(static_cast<size_t>((rows + 2) * channels));
  Wkv7Args args = inputs.on_host();
  args.states = states.on_host();
  args.out = host_view(expected, rows + 2, channels);
  TestDevice cpu = TestDevice::cpu(2);
  OpContext on_cpu = cpu.context();
  wkv7(on_cpu, args);
  expected.resize(static_cast<size_t>(rows * channels));

  const CudaMatrix out(cuda, dtype, rows + 2, channels, 7, nullptr);
  args = inputs.on_device();
  args.states = states.on_device();
  args.out = out.view();
  OpContext context = cuda.context();
  wkv7(context, args);
  const double tolerance = std::max(2 * unit_of(dtype), 2e-4);
  expect_near(rows_of_sequences(out, steps, channels), expected, tolerance, 5e-4);
  states.expect_alike(2e-4);
}

TEST(Wkv7Cuda, RowsAndStatesAreTheCpus) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const StateSteps& steps : {StateSteps::mixed(), StateSteps::decodes()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const WkvCase& of : std::vector<WkvCase>{{{.heads = 2, .head_dim = 64}},
                                                    {{.heads = 3, .head_dim = 16}, true},
                                                    {{.heads = 1, .head_dim = 40}},
                                                    {{.heads = 2, .head_dim = 20}, true},
                                                    {{.heads = 1, .head_dim = 12}},
                                                    {{.heads = 3, .head_dim = 5}},
                                                    {{.heads = 2, .head_dim = 100}},
                                                    {{.heads = 2, .head_dim = 128}, true}}) {
        SCOPED_TRACE(testing::Message() << of.heads.heads << " heads of " << of.heads.head_dim
                                        << ", " << steps.rows() << " rows " << dtype_name(dtype));
        run_wkv(cuda, of, steps, dtype);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Wkv7Cuda, BitsDependNeitherOnStepsNorOnWhatElseIsInThem) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int32_t kRows = 37;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int32_t head_dim : {20, 64, 100}) {
      SCOPED_TRACE(testing::Message() << head_dim << " " << dtype_name(dtype));
      const WkvCase of{{.heads = 2, .head_dim = head_dim}};
      const WkvInputs inputs(cuda, of, dtype, kRows);
      OpContext context = cuda.context();
      expect_cuda_bits_whatever_the_steps(cuda, dtype, kRows, of.heads.channels(),
                                          of.heads.state_bytes(),
                                          [&](const StateView& states, const TensorView& out) {
                                            Wkv7Args args = inputs.on_device();
                                            args.states = states;
                                            args.out = out;
                                            wkv7(context, args);
                                          });
    }
  }
}

// As the mixer has them.
TEST(Wkv7Cuda, ResultsMayLieOverR) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const StateSteps steps = StateSteps::mixed();
  for (const int32_t head_dim : {16, 64, 128}) {
    SCOPED_TRACE(head_dim);
    const WkvCase of{{.heads = 2, .head_dim = head_dim}};
    std::vector<std::vector<float>> results;
    for (const bool over_r : {false, true}) {
      const WkvInputs inputs(cuda, of, DType::kBF16, steps.rows());
      Rng rng(5);
      StatesOnBoth states(cuda, rng, of.heads.state_bytes(), steps);
      const CudaMatrix out(cuda, DType::kBF16, steps.rows(), of.heads.channels(), 0, nullptr);
      Wkv7Args args = inputs.on_device();
      args.states = states.on_device();
      args.out = over_r ? inputs.r_on_device().view() : out.view();
      OpContext context = cuda.context();
      wkv7(context, args);
      results.push_back(over_r ? inputs.r_on_device().read() : out.read());
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(Wkv7Cuda, LargerHeadsAreNotTaken) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  Wkv7Args args{};
  args.heads = {.heads = 2, .head_dim = 128};
  EXPECT_NE(wkv7_kernels().find(cuda.device().traits(), args), nullptr);
  args.heads.head_dim = 129;
  EXPECT_EQ(wkv7_kernels().find(cuda.device().traits(), args), nullptr);
}

}  // namespace
}  // namespace headrace::wkv7_cuda_test
