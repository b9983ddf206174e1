// The CUDA kernels of the ops that frames and sparse gates are made of (models/parts) against the
// CPU reference on the same rounded inputs.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "ops/rows/activation.h"
#include "ops/rows/altup.h"
#include "ops/rows/cut_gates.h"
#include "ops/rows/match_size.h"
#include "ops/rows/norm_add.h"
#include "ops/rows/row_ops_cuda_fixture.h"
#include "ops/rows/scale_rows.h"

namespace headrace::frame_ops_cuda_test {
namespace {

// Gates whose other factor lies elsewhere, in place.
TEST(FrameOpsCuda, GatedActivationOfTwoViews) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 5));
    const std::vector<float> gate = rounded_floats(rng, dtype, rows * columns, 2.0f);
    std::vector<float> up = rounded_floats(rng, dtype, rows * columns, 2.0f);
    std::vector<float> expected = gate;
    GatedActivationArgs args{.gate_up = host_view(expected, rows, columns),
                             .activation = Activation::kGeluTanh,
                             .out = host_view(expected, rows, columns),
                             .up = host_view(up, rows, columns)};
    OpContext reference = cpu.context(), context = cuda.context();
    gated_activation_kernels().all().back().run(reference, args);
    for (const int64_t up_gap : {gap, int64_t{16}}) {
      const CudaMatrix other(cuda, dtype, rows, columns, up_gap, &up);
      args.up = other.view();
      for (const auto& kernel : gated_activation_kernels().all()) {
        CudaMatrix x(cuda, dtype, rows, columns, gap, &gate);
        args.gate_up = args.out = x.view();
        if (!kernel.supports(cuda.device().traits(), args)) continue;
        SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
        kernel.run(context, args);
        expect_near(x.read(), expected, unit_of(dtype), 4e-6);
      }
    }
  });
}

TEST(FrameOpsCuda, ScaleRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 13));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
    const std::vector<float> added = rounded_floats(rng, dtype, rows * columns);
    const CudaMatrix added_on(cuda, dtype, rows, columns, gap, &added);
    for (const auto& [scale, divisor] : {std::pair(2.5f, 1.0f), {1.0f, 3.0f}, {0.0f, 1.0f}}) {
      for (const bool adds : {false, true}) {
        std::vector<float> expected = start;
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] = (adds ? start[i] + added[i] : start[i]) * scale / divisor;
        }
        for (const auto& kernel : scale_rows_kernels().all()) {
          CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
          ScaleRowsArgs args{.x = x.view(), .scale = scale, .divisor = divisor};
          if (adds) args.added = added_on.view();
          if (!kernel.supports(cuda.device().traits(), args)) continue;
          SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
          OpContext context = cuda.context();
          kernel.run(context, args);
          expect_near(x.read(), expected, unit_of(dtype), 1e-6);
        }
      }
    }
  });
}

// Groups of a warp's accesses and of fewer and more columns, wherever a row begins.
TEST(FrameOpsCuda, NormAdd) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for (const DType dtype : kTypes) {
    for (const int64_t group : {1, 7, 8, 100, 256, 1000}) {
      for (const int64_t rows : {1, 3, 70}) {
        for (const int64_t gap : {0, 3, 8}) {
          const int64_t columns = 5 * group;
          Rng rng(static_cast<uint64_t>(group + rows));
          const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
          std::vector<float> added = rounded_floats(rng, dtype, rows * columns, 2.0f);
          const std::vector<float> weight = random_floats(rng, group);
          const CudaArray<float> weight_on(cuda, weight);
          std::vector<float> expected = start;
          NormAddArgs args{.x = host_view(expected, rows, columns),
                           .y = host_view(added, rows, columns),
                           .weight = weight.data(),
                           .group = group,
                           .eps = 1e-4f,
                           .scale = 0.3f,
                           .factor = 0.7f};
          OpContext reference = cpu.context(), context = cuda.context();
          norm_add_kernels().all().back().run(reference, args);
          args.weight = weight_on.data();
          const CudaMatrix y(cuda, dtype, rows, columns, gap, &added);
          args.y = y.view();
          for (const auto& kernel : norm_add_kernels().all()) {
            CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
            args.x = x.view();
            if (!kernel.supports(cuda.device().traits(), args)) continue;
            SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
            kernel.run(context, args);
            expect_near(x.read(), expected, unit_of(dtype), 1e-5);
          }
        }
      }
    }
  }
}

TEST(FrameOpsCuda, CutGates) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 14));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns, 2.0f);
    for (const float cutoff : {-0.5f, 1.6f}) {
      std::vector<float> expected = start;
      OpContext reference = cpu.context(), context = cuda.context();
      cut_gates(reference, {.x = host_view(expected, rows, columns), .cutoff = cutoff});
      for (const auto& kernel : cut_gates_kernels().all()) {
        CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
        const CutGatesArgs args{.x = x.view(), .cutoff = cutoff};
        if (!kernel.supports(cuda.device().traits(), args)) continue;
        SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
        kernel.run(context, args);
        expect_near(x.read(), expected, unit_of(dtype), 1e-5);
      }
    }
  });
}

TEST(FrameOpsCuda, MatchSize) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 15));
    std::vector<float> rows_of_x = rounded_floats(rng, dtype, rows * columns);
    std::vector<float> like = rounded_floats(rng, dtype, rows * columns, 3.0f);
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
    const CudaMatrix like_on(cuda, dtype, rows, columns, gap, &like);
    for (const float least : {1e-5f, 9.0f}) {
      for (const bool adds : {false, true}) {
        std::vector<float> expected = adds ? start : rows_of_x;
        MatchSizeArgs args{.x = host_view(rows_of_x, rows, columns),
                           .like = host_view(like, rows, columns),
                           .least = least,
                           .out = host_view(expected, rows, columns),
                           .adds = adds};
        OpContext reference = cpu.context(), context = cuda.context();
        match_size(reference, args);
        args.like = like_on.view();
        for (const auto& kernel : match_size_kernels().all()) {
          const CudaMatrix x(cuda, dtype, rows, columns, gap, &rows_of_x);
          const CudaMatrix out(cuda, dtype, rows, columns, gap, &start);
          args.x = x.view();
          args.out = adds ? out.view() : x.view();
          if (!kernel.supports(cuda.device().traits(), args)) continue;
          SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
          kernel.run(context, args);
          expect_near((adds ? out : x).read(), expected, unit_of(dtype), 2e-5);
        }
      }
    }
  });
}

// What both ops of AltUp read, on the host and on the device.
struct AltUpCase {
  static constexpr int64_t kColumns = 300;

  AltUpCase(TestDevice& cuda, DType dtype, int64_t rows, int32_t count, int64_t gap)
      : rng(static_cast<uint64_t>(count + rows)),
        start(rounded_floats(rng, dtype, rows * count * kColumns)),
        modes(random_floats(rng, rows * count)),
        made(rounded_floats(rng, dtype, rows * kColumns)),
        modes_on(cuda, DType::kF32, rows, count, 0, &modes),
        made_on(cuda, dtype, rows, kColumns, gap, &made) {}

  Rng rng;
  std::vector<float> start, modes, made;
  CudaMatrix modes_on, made_on;
};

// Calls body(case, dtype, rows, count, gap) for every case.
template <class Body>
void for_each_altup_case(TestDevice& cuda, const Body& body) {
  for (const DType dtype : kTypes) {
    for (const int32_t count : {1, 3, 4, 7, kAltUpStreamsMax}) {
      for (const int64_t rows : {1, 3, 70}) {
        for (const int64_t gap : {0, 3}) {
          AltUpCase data(cuda, dtype, rows, count, gap);
          body(data, dtype, rows, count, gap);
        }
      }
    }
  }
}

TEST(FrameOpsCuda, AltUpPredicts) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_altup_case(
      cuda, [&](AltUpCase& data, DType dtype, int64_t rows, int32_t count, int64_t gap) {
        constexpr int64_t kWide = AltUpCase::kColumns;
        const std::vector<float> weights =
            random_floats(data.rng, int64_t{count} * count * count, 0.3f);
        const CudaArray<float> weights_on(cuda, weights);
        std::vector<float> expected = data.start, expected_x(data.made.size());
        AltUpPredictArgs args{.streams = host_view(expected, rows, count * kWide),
                              .modes = host_view(data.modes, rows, count),
                              .weights = weights.data(),
                              .active = count - 1,
                              .x = host_view(expected_x, rows, kWide)};
        OpContext reference = cpu.context(), context = cuda.context();
        altup_predict(reference, args);
        args.modes = data.modes_on.view();
        args.weights = weights_on.data();
        for (const auto& kernel : altup_predict_kernels().all()) {
          const CudaMatrix streams(cuda, dtype, rows, count * kWide, gap, &data.start);
          const CudaMatrix x(cuda, dtype, rows, kWide, gap, nullptr);
          args.streams = streams.view();
          args.x = x.view();
          if (!kernel.supports(cuda.device().traits(), args)) continue;
          SCOPED_TRACE(label(kernel.name, dtype, rows, count));
          kernel.run(context, args);
          expect_near(streams.read(), expected, unit_of(dtype), 1e-5);
          expect_near(x.read(), expected_x, unit_of(dtype), 1e-5);
        }
      });
}

TEST(FrameOpsCuda, AltUpCorrects) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_altup_case(
      cuda, [&](AltUpCase& data, DType dtype, int64_t rows, int32_t count, int64_t gap) {
        constexpr int64_t kWide = AltUpCase::kColumns;
        const std::vector<float> weights = random_floats(data.rng, int64_t{count} * count, 0.3f);
        const std::vector<float> scale = random_floats(data.rng, kWide);
        const CudaArray<float> weights_on(cuda, weights), scale_on(cuda, scale);
        std::vector<float> expected = data.start, expected_out(data.made.size());
        AltUpCorrectArgs args{.streams = host_view(expected, rows, count * kWide),
                              .modes = host_view(data.modes, rows, count),
                              .weights = weights.data(),
                              .active = count / 2,
                              .x = host_view(data.made, rows, kWide),
                              .scale = scale.data(),
                              .out = host_view(expected_out, rows, kWide)};
        OpContext reference = cpu.context(), context = cuda.context();
        altup_correct(reference, args);
        args.modes = data.modes_on.view();
        args.weights = weights_on.data();
        args.scale = scale_on.data();
        args.x = data.made_on.view();
        for (const auto& kernel : altup_correct_kernels().all()) {
          const CudaMatrix streams(cuda, dtype, rows, count * kWide, gap, &data.start);
          const CudaMatrix out(cuda, dtype, rows, kWide, gap, nullptr);
          args.streams = streams.view();
          args.out = out.view();
          if (!kernel.supports(cuda.device().traits(), args)) continue;
          SCOPED_TRACE(label(kernel.name, dtype, rows, count));
          kernel.run(context, args);
          expect_near(streams.read(), expected, unit_of(dtype), 1e-5);
          // It is made of a rounded stream, and rounded once more.
          expect_near(out.read(), expected_out, 2 * unit_of(dtype), 1e-5);
        }
      });
}

}  // namespace
}  // namespace headrace::frame_ops_cuda_test
