// The CUDA kernels of the ops that go over rows (embedding, activations, residual, LayerNorm, soft
// cap, angles, gather) against the CPU reference on the same rounded inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/packing/random_matrix.h"
#include "ops/rows/activation.h"
#include "ops/rows/embedding.h"
#include "ops/rows/gated_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rope_angles.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/row_ops_cuda_fixture.h"
#include "ops/rows/scale_queries.h"
#include "ops/rows/sigmoid_gate.h"
#include "ops/rows/soft_cap.h"
#include "tensor/quantised_row.h"

namespace headrace::row_ops_cuda_test {
namespace {

TEST(RowOpsCuda, GatedActivation) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns));
    std::vector<float> gate_up = rounded_floats(rng, dtype, rows * 2 * columns, 2.0f);
    for (const Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                                 Activation::kRelu, Activation::kReluSquared, Activation::kTanh,
                                 Activation::kSigmoid, Activation::kClampedSwish}) {
      std::vector<float> expected(static_cast<size_t>(rows * columns));
      OpContext reference = cpu.context(), context = cuda.context();
      gated_activation_kernels().all().back().run(
          reference,
          {host_view(gate_up, rows, 2 * columns), act, host_view(expected, rows, columns)});
      for (const auto& kernel : gated_activation_kernels().all()) {
        CudaMatrix x(cuda, dtype, rows, 2 * columns, gap, &gate_up);
        CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
        const GatedActivationArgs args{x.view(), act, out.view()};
        if (!kernel.supports(cuda.device().traits(), args)) continue;
        SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
        kernel.run(context, args);
        expect_near(out.read(), expected, unit_of(dtype), 4e-6);
      }
    }
  });
}

TEST(RowOpsCuda, Activation) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  constexpr XieluParameters kXielu{.p = 0.8f, .n = 1.1f, .b = 0.5f, .e = -1e-6f};
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 1));
    std::vector<float> values = rounded_floats(rng, dtype, rows * columns, 2.0f);
    for (const Activation act : {Activation::kGeluTanh, Activation::kReluSquared, Activation::kTanh,
                                 Activation::kSigmoid, Activation::kXielu}) {
      std::vector<float> expected(values.size());
      OpContext reference = cpu.context(), context = cuda.context();
      activation_kernels().all().back().run(
          reference,
          {host_view(values, rows, columns), act, host_view(expected, rows, columns), kXielu});
      for (const auto& kernel : activation_kernels().all()) {
        CudaMatrix x(cuda, dtype, rows, columns, gap, &values);
        const ActivationArgs args{x.view(), act, x.view(), kXielu};
        if (!kernel.supports(cuda.device().traits(), args)) continue;
        SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
        kernel.run(context, args);
        expect_near(x.read(), expected, unit_of(dtype), 4e-6);
      }
    }
  });
}

// Far from 0 nothing overflows to NaN, and a NaN stays one, in its place.
TEST(RowOpsCuda, ActivationsOfLargeValuesAndNan) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  constexpr XieluParameters kXielu{.p = 0.8f, .n = 1.1f, .b = 0.5f, .e = -1e-6f};
  constexpr size_t kNan = 5;
  std::vector<float> values = {-1e6f, -200.0f, -88.0f, -1e-7f, -0.0f, std::nanf(""),
                               0.0f,  1e-7f,   88.0f,  200.0f, 1e6f};
  const auto columns = static_cast<int64_t>(values.size());
  for (const Activation act : {Activation::kTanh, Activation::kSigmoid, Activation::kXielu}) {
    std::vector<float> expected(values.size());
    OpContext reference = cpu.context(), context = cuda.context();
    activation_kernels().all().back().run(
        reference, {host_view(values, 1, columns), act, host_view(expected, 1, columns), kXielu});
    const CudaMatrix x(cuda, DType::kF32, 1, columns, 0, &values);
    activation(context, {x.view(), act, x.view(), kXielu});
    std::vector<float> actual = x.read();
    SCOPED_TRACE(static_cast<int>(act));
    EXPECT_TRUE(std::isnan(actual[kNan]) && std::isnan(expected[kNan]));
    actual[kNan] = expected[kNan] = 0.0f;
    expect_near(actual, expected, 4e-6, 1e-6);
  }
}

TEST(RowOpsCuda, ResidualAdd) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 2));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
    std::vector<float> added = rounded_floats(rng, dtype, rows * columns);
    for (const float scale : {1.0f, 0.22f}) {
      std::vector<float> expected = start;
      OpContext reference = cpu.context(), context = cuda.context();
      residual_add_kernels().all().back().run(
          reference, {host_view(expected, rows, columns), host_view(added, rows, columns), scale});
      for (const auto& kernel : residual_add_kernels().all()) {
        CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
        CudaMatrix residual(cuda, dtype, rows, columns, gap, &added);
        const ResidualAddArgs args{x.view(), residual.view(), scale};
        if (!kernel.supports(cuda.device().traits(), args)) continue;
        SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
        kernel.run(context, args);
        expect_near(x.read(), expected, unit_of(dtype), 1e-5);
      }
    }
  });
}

// By which the last rows are multiplied (models/decoder.cc).
TEST(RowOpsCuda, ResidualAddOfTheRowsThemselves) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 12));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
    for (const float factor : {2.5f, 0.4f, 0.0f}) {
      std::vector<float> expected = start;
      for (float& value : expected) value *= factor;
      for (const auto& kernel : residual_add_kernels().all()) {
        CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
        const ResidualAddArgs args{x.view(), x.view(), factor - 1.0f};
        if (!kernel.supports(cuda.device().traits(), args)) continue;
        SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
        OpContext context = cuda.context();
        kernel.run(context, args);
        expect_near(x.read(), expected, unit_of(dtype), 1e-5);
      }
    }
  });
}

TEST(RowOpsCuda, LayerNorm) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 3));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
    const std::vector<float> weight = random_floats(rng, columns),
                             bias = random_floats(rng, columns);
    const CudaArray<float> weight_on(cuda, weight), bias_on(cuda, bias);
    // A third of 2,049 columns takes the threads of a row, others those of a head.
    for (const int32_t groups : {1, 3, 4, 25}) {
      if (columns % groups != 0 || (groups > 1 && columns == groups)) continue;
      std::vector<float> values = start, expected(start.size());
      LayerNormArgs args{.x = host_view(values, rows, columns),
                         .residual = {},
                         .weight = weight.data(),
                         .bias = bias.data(),
                         .eps = 1e-5f,
                         .out = host_view(expected, rows, columns),
                         .groups = groups};
      OpContext reference = cpu.context(), context = cuda.context();
      layer_norm_kernels().all().back().run(reference, args);
      args.weight = weight_on.data();
      args.bias = bias_on.data();
      for (const auto& kernel : layer_norm_kernels().all()) {
        for (const bool in_place : {false, true}) {
          CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
          CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
          args.x = x.view();
          args.out = in_place ? x.view() : out.view();
          if (!kernel.supports(cuda.device().traits(), args)) continue;
          SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
          kernel.run(context, args);
          expect_near((in_place ? x : out).read(), expected, unit_of(dtype), 2e-5);
        }
      }
    }
  });
}

TEST(RowOpsCuda, GatedNorm) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 4));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns);
    std::vector<float> gates = rounded_floats(rng, dtype, rows * columns, 2.0f);
    const std::vector<float> weight = random_floats(rng, columns);
    const CudaArray<float> weight_on(cuda, weight);
    const int64_t group = columns % 4 == 0 ? columns / 4 : columns;
    for (const GatedNorm norm :
         {GatedNorm::kNone, GatedNorm::kBehindGate, GatedNorm::kBeforeGate}) {
      std::vector<float> expected = start;
      GatedNormArgs args{.x = host_view(expected, rows, columns),
                         .gate = host_view(gates, rows, columns),
                         .weight = weight.data(),
                         .norm = norm,
                         .group = group,
                         .eps = 0.01f,
                         .gate_scale = 0.7f};
      OpContext reference = cpu.context(), context = cuda.context();
      gated_norm_kernels().all().back().run(reference, args);
      CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
      const CudaMatrix gate(cuda, dtype, rows, columns, gap, &gates);
      args.x = x.view();
      args.gate = gate.view();
      args.weight = weight_on.data();
      SCOPED_TRACE(label("gated_norm", dtype, rows, columns));
      gated_norm(context, args);
      expect_near(x.read(), expected, unit_of(dtype), 2e-5);
    }
  });
}

TEST(RowOpsCuda, SoftCap) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  Rng rng(5);
  for (const int64_t columns : {1, 1000, 49152}) {
    const std::vector<float> values = random_floats(rng, 3 * columns, 40.0f);
    CudaMatrix x(cuda, DType::kF32, 3, columns, 5, &values);
    OpContext context = cuda.context();
    soft_cap(context, {x.view(), 30.0f});
    std::vector<float> expected;
    for (const float v : values) expected.push_back(30.0f * std::tanh(v / 30.0f));
    expect_near(x.read(), expected, 2e-6);
  }
}

TEST(RowOpsCuda, HardCaps) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns));
    const std::vector<float> start = rounded_floats(rng, dtype, rows * columns, 2.0f);
    for (const CapKind kind : {CapKind::kClamp, CapKind::kAtMost}) {
      std::vector<float> expected = start;
      OpContext reference = cpu.context(), context = cuda.context();
      soft_cap(reference, {host_view(expected, rows, columns), 0.75f, kind});
      CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
      SCOPED_TRACE(label("soft_cap", dtype, rows, columns));
      soft_cap(context, {x.view(), 0.75f, kind});
      expect_near(x.read(), expected, 0);
    }
  });
}

// A gate of each column, and of each of some heads.
TEST(RowOpsCuda, SigmoidGate) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t gate_columns, int64_t gap) {
    for (const int64_t of_gate : {1, 12}) {
      for (const GateKind kind : {GateKind::kSigmoid, GateKind::kSoftplus}) {
        const int64_t columns = gate_columns * of_gate;
        Rng rng(static_cast<uint64_t>(columns));
        const std::vector<float> start = rounded_floats(rng, dtype, rows * columns, 2.0f);
        std::vector<float> gates = rounded_floats(rng, dtype, rows * gate_columns, 6.0f);
        std::vector<float> expected = start;
        OpContext reference = cpu.context(), context = cuda.context();
        sigmoid_gate(reference, {.x = host_view(expected, rows, columns),
                                 .gate = host_view(gates, rows, gate_columns),
                                 .kind = kind});
        CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
        const CudaMatrix gate(cuda, dtype, rows, gate_columns, gap, &gates);
        SCOPED_TRACE(label("sigmoid_gate", dtype, rows, columns));
        sigmoid_gate(context, {.x = x.view(), .gate = gate.view(), .kind = kind});
        expect_near(x.read(), expected, unit_of(dtype), 2e-5);
      }
    }
  });
}

// Queries of heads of 1 to 128 components, wherever a row begins.
TEST(RowOpsCuda, ScaleQueries) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for (const DType dtype : kTypes) {
    for (const int32_t dim : {1, 12, 20, 64, 128}) {
      for (const int64_t rows : {1, 3, 70}) {
        for (const int64_t gap : {0, 3, 8}) {
          for (const float scale : {0.0f, 0.4f}) {
            const int64_t columns = int64_t{dim} * 17;
            Rng rng(static_cast<uint64_t>(dim + rows));
            const std::vector<float> start = rounded_floats(rng, dtype, rows * columns, 2.0f);
            const std::vector<float> weights = random_floats(rng, dim);
            std::vector<int32_t> positions;
            for (int64_t t = 0; t < rows; ++t) {
              positions.push_back(static_cast<int32_t>(rng.below(200000)) >> rng.below(18));
            }
            const CudaArray<int32_t> positions_on(cuda, positions);
            const CudaArray<float> weights_on(cuda, weights);
            for (const bool weighted : {false, true}) {
              std::vector<float> expected = start;
              ScaleQueriesArgs args{.x = host_view(expected, rows, columns),
                                    .temperature = {.scale = scale, .step = 32, .offset = 1},
                                    .positions = positions,
                                    .weights = weighted ? weights.data() : nullptr,
                                    .head_dim = dim};
              OpContext reference = cpu.context(), context = cuda.context();
              scale_queries_kernels().all().back().run(reference, args);
              for (const auto& kernel : scale_queries_kernels().all()) {
                CudaMatrix x(cuda, dtype, rows, columns, gap, &start);
                args.x = x.view();
                args.positions = positions_on.span();
                args.weights = weighted ? weights_on.data() : nullptr;
                if (!kernel.supports(cuda.device().traits(), args)) continue;
                SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
                kernel.run(context, args);
                expect_near(x.read(), expected, unit_of(dtype), 1e-6);
              }
            }
          }
        }
      }
    }
  }
}

TEST(RowOpsCuda, RopeAngles) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 131071, 1000000};
  std::vector<double> inv_freq;
  for (int i = 0; i < 33; ++i) inv_freq.push_back(std::pow(500000.0, -i / 33.0));
  const auto rows = static_cast<int64_t>(positions.size());
  const CudaArray<int32_t> positions_on(cuda, positions);
  const CudaArray<double> inv_freq_on(cuda, inv_freq);
  CudaMatrix cos(cuda, DType::kF32, rows, 33, 3, nullptr),
      sin(cuda, DType::kF32, rows, 33, 0, nullptr);
  OpContext context = cuda.context();
  rope_angles(context, {.positions = positions_on.span(),
                        .inv_freq = inv_freq_on.span(),
                        .scale = 1.25f,
                        .cos = cos.view(),
                        .sin = sin.view()});
  std::vector<float> expected_cos, expected_sin;
  for (const int32_t position : positions) {
    for (const double f : inv_freq) {
      expected_cos.push_back(static_cast<float>(std::cos(position * f) * 1.25f));
      expected_sin.push_back(static_cast<float>(std::sin(position * f) * 1.25f));
    }
  }
  expect_near(cos.read(), expected_cos, 2e-7, 1e-7);
  expect_near(sin.read(), expected_sin, 2e-7, 1e-7);
}

TEST(RowOpsCuda, EmbeddingAndGather) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 4));
    constexpr int64_t kVocabulary = 211;
    const std::vector<float> table = rounded_floats(rng, dtype, kVocabulary * columns);
    std::vector<int32_t> tokens;
    std::vector<float> expected, scaled;
    for (int64_t t = 0; t < rows; ++t) {
      tokens.push_back(static_cast<int32_t>(rng.below(kVocabulary)));
      for (int64_t i = 0; i < columns; ++i) {
        expected.push_back(table[static_cast<size_t>(tokens.back() * columns + i)]);
        scaled.push_back(expected.back() * 1.5f);
      }
    }
    const CudaArray<int32_t> tokens_on(cuda, tokens);
    CudaMatrix table_on(cuda, dtype, kVocabulary, columns, gap, &table);
    OpContext context = cuda.context();
    for (const auto& kernel : embedding_kernels().all()) {
      CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
      const EmbeddingArgs args{tokens_on.span(), table_on.view(), out.view(), 1.5f};
      if (!kernel.supports(cuda.device().traits(), args)) continue;
      SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
      kernel.run(context, args);
      expect_near(out.read(), decode(dtype, encode(dtype, scaled)), 0.0, 0.0);
    }
    // Of a table that begins like this one, tokens beyond which have its first row.
    constexpr int64_t kKnown = 100;
    std::vector<float> of_known;
    for (const int32_t token : tokens) {
      const int64_t row = token < kKnown ? token : 0;
      for (int64_t i = 0; i < columns; ++i) {
        of_known.push_back(table[static_cast<size_t>(row * columns + i)] * 1.5f);
      }
    }
    for (const auto& kernel : embedding_kernels().all()) {
      CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
      EmbeddingArgs args{tokens_on.span(), table_on.view().row_range(0, kKnown), out.view(), 1.5f};
      args.first_for_others = true;
      if (!kernel.supports(cuda.device().traits(), args)) continue;
      SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
      kernel.run(context, args);
      expect_near(out.read(), decode(dtype, encode(dtype, of_known)), 0.0, 0.0);
    }
    for (const auto& kernel : row_gather_kernels().all()) {
      CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
      const RowGatherArgs args{table_on.view(), tokens_on.span(), out.view()};
      if (!kernel.supports(cuda.device().traits(), args)) continue;
      SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
      kernel.run(context, args);
      expect_near(out.read(), expected, 0.0, 0.0);
      const CudaMatrix from(cuda, dtype, rows, columns, gap, &expected);
      CudaMatrix all(cuda, dtype, rows, columns, gap, nullptr);
      kernel.run(context, {from.view(), {}, all.view()});
      expect_near(all.read(), expected, 0.0, 0.0);
    }
  });
}

TEST(RowOpsCuda, GatherOfScaledRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  TestDevice cpu = TestDevice::cpu(1);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 6));
    constexpr int64_t kRows = 41;
    std::vector<float> values = rounded_floats(rng, dtype, kRows * columns);
    const std::vector<float> scales = random_floats(rng, rows);
    std::vector<int32_t> listed;
    for (int64_t i = 0; i < rows; ++i) listed.push_back(static_cast<int32_t>(rng.below(kRows)));
    std::vector<float> expected(static_cast<size_t>(rows * columns));
    OpContext reference = cpu.context(), context = cuda.context();
    row_gather(reference, {.x = host_view(values, kRows, columns),
                           .rows = listed,
                           .out = host_view(expected, rows, columns),
                           .scales = scales});
    const CudaArray<int32_t> listed_on(cuda, listed);
    const CudaArray<float> scales_on(cuda, scales);
    const CudaMatrix x(cuda, dtype, kRows, columns, gap, &values);
    for (const auto& kernel : row_gather_kernels().all()) {
      CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
      const RowGatherArgs args{
          .x = x.view(), .rows = listed_on.span(), .out = out.view(), .scales = scales_on.span()};
      if (!kernel.supports(cuda.device().traits(), args)) continue;
      SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
      kernel.run(context, args);
      expect_near(out.read(), decode(dtype, encode(dtype, expected)), 0.0, 0.0);
    }
  });
}

// A position that is none reads the nearest row.
TEST(RowOpsCuda, EmbeddingAddsTheRowsOfPositions) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for_each_case([&](DType dtype, int64_t rows, int64_t columns, int64_t gap) {
    Rng rng(static_cast<uint64_t>(columns + 5));
    constexpr int64_t kVocabulary = 31, kPositions = 7;
    const std::vector<float> table = rounded_floats(rng, dtype, kVocabulary * columns);
    const std::vector<float> learned = rounded_floats(rng, DType::kF32, kPositions * columns);
    std::vector<int32_t> tokens, positions;
    std::vector<float> expected;
    for (int64_t t = 0; t < rows; ++t) {
      tokens.push_back(static_cast<int32_t>(rng.below(kVocabulary)));
      positions.push_back(static_cast<int32_t>(rng.below(kPositions + 1)));
      const int64_t position = std::min<int64_t>(positions.back(), kPositions - 1);
      for (int64_t i = 0; i < columns; ++i) {
        expected.push_back(table[static_cast<size_t>(tokens.back() * columns + i)] * 1.5f +
                           learned[static_cast<size_t>(position * columns + i)]);
      }
    }
    const CudaArray<int32_t> tokens_on(cuda, tokens), positions_on(cuda, positions);
    CudaMatrix table_on(cuda, dtype, kVocabulary, columns, gap, &table);
    CudaMatrix learned_on(cuda, DType::kF32, kPositions, columns, 0, &learned);
    OpContext context = cuda.context();
    for (const auto& kernel : embedding_kernels().all()) {
      CudaMatrix out(cuda, dtype, rows, columns, gap, nullptr);
      EmbeddingArgs args{tokens_on.span(), table_on.view(), out.view(), 1.5f};
      args.positions = positions_on.span();
      args.position_table = learned_on.view();
      if (!kernel.supports(cuda.device().traits(), args)) continue;
      SCOPED_TRACE(label(kernel.name, dtype, rows, columns));
      kernel.run(context, args);
      expect_near(out.read(), expected, unit_of(dtype), 1e-6);
    }
  });
}

// A table in packed groups, as a head's.
TEST(RowOpsCuda, EmbeddingOfPackedBlocks) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  Rng rng(9);
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    const int64_t columns = 3 * dtype_info(type).block_elements, vocabulary = 77;
    const RandomMatrix table(rng, type, vocabulary, columns);
    const LinearSource source{table.view(), {}};
    const std::vector<int32_t> tokens = {0, 76, 15, 16, 33, 33};
    const CudaArray<int32_t> tokens_on(cuda, tokens);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const auto compute = dtype == DType::kF16 ? LinearCompute::kFloat16 : LinearCompute::kFast;
      const LinearWeight packed =
          std::move(LinearWeight::pack(cuda.device(), {&source, 1}, compute).value());
      std::vector<float> expected;
      for (const int32_t token : tokens) {
        std::vector<float> row(static_cast<size_t>(columns));
        dequantise_row(table.view(), token, row.data());
        for (const float value : row) expected.push_back(value * 1.5f);
      }
      CudaMatrix out(cuda, dtype, std::ssize(tokens), columns, 8, nullptr);
      OpContext context = cuda.context();
      embedding(context, {.tokens = tokens_on.span(),
                          .table = {},
                          .out = out.view(),
                          .scale = 1.5f,
                          .packed = &packed});
      SCOPED_TRACE(label("packed", type, std::ssize(tokens), columns));
      expect_near(out.read(), expected, unit_of(dtype), 1e-6);
    }
  }
}

TEST(RowGather, TheCpuCopiesRows) {
  TestDevice cpu = TestDevice::cpu(1);
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, out(4);
  const std::vector<int32_t> rows = {2, 0};
  OpContext context = cpu.context();
  row_gather(context, {host_view(x, 3, 2), rows, host_view(out, 2, 2)});
  EXPECT_EQ(out, (std::vector<float>{5, 6, 1, 2}));
  std::vector<float> wide(9, 0.0f);
  const TensorView apart(reinterpret_cast<std::byte*>(wide.data()), DType::kF32, Shape{3, 2}, 12);
  row_gather(context, {host_view(x, 3, 2), {}, apart});
  EXPECT_EQ(wide, (std::vector<float>{1, 2, 0, 3, 4, 0, 5, 6, 0}));
}

}  // namespace
}  // namespace headrace::row_ops_cuda_test
