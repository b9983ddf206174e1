// Which kernel is the best for which arguments (kernel_choices.txt): the tables of an H200 and of
// every kind of CPU, asked by traits alone, so that no GPU is needed. A choice that is changed on
// purpose changes its line.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ops/attention/plan.h"
#include "ops/attention/rope_attention.h"
#include "ops/fake_gpu.h"
#include "ops/linear/activated_linear.h"
#include "ops/linear/grouped_linear.h"
#include "ops/linear/norm_linear.h"
#include "ops/linear/residual_linear.h"
#include "ops/op_fixture.h"
#include "ops/rows/activation.h"
#include "ops/rows/soft_cap.h"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/sample.h"
#include "tensor/uploader.h"

namespace headrace::kernel_choice_test {
namespace {

using Lines = std::vector<std::string>;

// [n, k] of a file's `type`, or of F32 made FP8, every row the same.
LinearWeight weight_of(Device& gpu, DType type, int64_t n, int64_t k, LinearCompute compute) {
  const DType in_file = type == DType::kF8 ? DType::kF32 : type;
  const std::vector<std::byte> row(static_cast<size_t>(row_bytes(in_file, k).value()));
  const std::vector<int32_t> order(static_cast<size_t>(n), 0);
  LinearSource source{.weight = {row.data(), in_file, Shape{1, k}}, .row_order = order};
  if (type == DType::kF8) source.quantise_to = type;
  Uploader uploader(gpu, 1);
  LinearWeight weight = LinearWeight::start_pack(gpu, uploader, {&source, 1}, compute).value();
  CHECK(uploader.finish().ok());
  return weight;
}

// The kernel of each size from the first one on that it serves: "1 gemv, 9 stream, 65 library".
std::string runs(const std::vector<int64_t>& sizes,
                 const std::function<std::string(int64_t)>& choice) {
  std::string line, last;
  for (const int64_t size : sizes) {
    const std::string name = choice(size);
    if (name != last) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", size, name);
    last = name;
  }
  return line;
}

// What stands behind "linear/cuda/".
template <class Args>
std::string name_of(const Kernel<Args>* kernel) {
  if (kernel == nullptr) return "none";
  return std::string(kernel->name.substr(kernel->name.find('/') + 1));
}

const std::vector<int64_t> kRows = {1,   2,   4,   5,   8,   9,   16,  17,  32,  33,   64,   65,
                                    128, 129, 255, 256, 257, 511, 512, 767, 768, 1024, 4096, 8192};

// Rows of a model's activations, by their shapes alone: nothing reads them.
struct Rows {
  std::byte* at = reinterpret_cast<std::byte*>(uintptr_t{1} << 20);
  TensorView of(DType dtype, int64_t m, int64_t columns) const {
    return {at, dtype, Shape{m, columns}};
  }
};

// One line an op for a weight [n, k] and rows of `dtype`.
Lines linear_choices(const DeviceTraits& traits, const LinearWeight& weight, DType dtype) {
  const Rows rows;
  const int64_t n = weight.n(), k = weight.k();
  const auto linear = [&](int64_t m) {
    return LinearArgs{
        .x = rows.of(dtype, m, k), .weight = &weight, .bias = nullptr, .y = rows.of(dtype, m, n)};
  };
  const auto gated = [&](int64_t m) {
    return GatedLinearArgs{.x = rows.of(dtype, m, k),
                           .weight = &weight,
                           .bias = nullptr,
                           .gate_up = rows.of(dtype, m, n),
                           .y = rows.of(dtype, m, n / 2)};
  };
  const auto norm = [&](int64_t m) {
    return RmsNormArgs{.x = rows.of(dtype, m, k),
                       .residual = {},
                       .weight = reinterpret_cast<const float*>(rows.at),
                       .eps = 1e-5f,
                       .out = rows.of(dtype, m, k)};
  };
  const auto residual = [&](int64_t m) {
    return ResidualLinearArgs{.in = rows.of(dtype, m, k),
                              .weight = &weight,
                              .bias = nullptr,
                              .x = rows.of(dtype, m, n),
                              .branch = rows.of(dtype, m, n)};
  };
  Lines lines;
  const auto add = [&](std::string_view op, const auto& kernels, const auto& args) {
    const std::string found =
        runs(kRows, [&](int64_t m) { return name_of(kernels.find(traits, args(m))); });
    lines.push_back(fmt::format("{}: {}", op, found));
  };
  add("linear", linear_kernels(), linear);
  add("norm_linear", norm_linear_kernels(), [&](int64_t m) {
    return NormLinearArgs{norm(m), linear(m)};
  });
  add("gated_linear", gated_linear_kernels(), gated);
  add("norm_gated_linear", norm_gated_linear_kernels(), [&](int64_t m) {
    return NormGatedLinearArgs{norm(m), gated(m)};
  });
  add("residual_linear", residual_linear_kernels(), residual);
  if (weight.is_matrix_of(DType::kF8) || !weight.segments().empty()) {
    add("activated_linear", activated_linear_kernels(), [&](int64_t m) {
      return ActivatedLinearArgs{{.gate_up = rows.of(dtype, m, 2 * k), .out = rows.of(dtype, m, k)},
                                 linear(m)};
    });
  }
  return lines;
}

struct GpuLines {
  Lines free, invariant;  // DeviceTraits::batch_invariant
};

struct Matrix {
  int64_t n, k;
};
void add_weight(GpuLines& lines, const Matrix& matrix, DType type, LinearCompute compute) {
  FakeGpu gpu;
  const LinearWeight weight = weight_of(gpu, type, matrix.n, matrix.k, compute);
  const DType dtype = compute == LinearCompute::kFloat16 ? DType::kF16 : DType::kBF16;
  const DType kept = weight.is_matrix() ? weight.matrix().dtype : weight.main_dtype();
  for (const bool invariant : {false, true}) {
    for (const std::string& line : linear_choices(h200(invariant), weight, dtype)) {
      (invariant ? lines.invariant : lines.free)
          .push_back(fmt::format("{} {}x{} {}", dtype_name(kept), matrix.n, matrix.k, line));
    }
  }
}

GpuLines weights_on_a_gpu() {
  GpuLines lines;
  for (const LinearCompute compute : {LinearCompute::kFast, LinearCompute::kFloat16}) {
    for (const Matrix& matrix : {Matrix{576, 576},
                                 {960, 576},
                                 {3072, 576},
                                 {49152, 576},
                                 {2048, 2048},
                                 {4096, 4096},
                                 {6144, 4096},
                                 {28672, 4096},
                                 {4096, 14336},
                                 {896, 4864}}) {
      add_weight(lines, matrix, DType::kF32, compute);
    }
  }
  for (const Matrix& matrix : {Matrix{2048, 2048}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
    add_weight(lines, matrix, DType::kQ4_K, LinearCompute::kFast);
    add_weight(lines, matrix, DType::kF8, LinearCompute::kFast);
  }
  return lines;
}

// A step of single rows on a GPU: 32 query heads of 8 key heads.
struct DecodeStep {
  int32_t head_dim;
  int32_t v_dim = head_dim;
  bool alibi = false;
  bool rows_meet = false;
};
template <class Choose>
std::string decode_choices(const DeviceTraits& traits, const DecodeStep& step,
                           const Choose& choose) {
  const Rows memory;
  const int32_t head_dim = step.head_dim;
  AttentionPlan plan{
      .has_decode = true, .only_single_rows = !traits.batch_invariant, .rows_meet = step.rows_meet};
  plan.shape = {.query_heads = 32, .kv_heads = 8, .head_dim = head_dim, .sm_count = 132};
  KvLayerView kv = alike_kv(DType::kBF16, KeyLayout::kRows, 8, head_dim);
  kv.v_dim = step.v_dim;
  kv.base = memory.at;
  kv.block_stride = layer_part_bytes(kv);
  return runs(kRows, [&](int64_t m) {
    const TensorView angles = memory.of(DType::kF32, m, head_dim / 2);
    RopeAttentionArgs args;
    args.rope.qkv = memory.of(DType::kBF16, m, int64_t{40} * head_dim + int64_t{8} * step.v_dim);
    args.rope.cos = args.rope.sin = angles;
    args.rope.query_heads = 32;
    args.rope.kv = args.attention.kv = kv;
    args.attention.q = memory.of(DType::kBF16, m, int64_t{32} * head_dim);
    args.attention.out = memory.of(DType::kBF16, m, int64_t{32} * step.v_dim);
    args.attention.plan = &plan;
    if (step.alibi) args.attention.slopes = reinterpret_cast<const float*>(memory.at);
    return choose(args);
  });
}

Lines others_on_a_gpu(const DeviceTraits& traits) {
  Lines lines;
  const auto attend = [&](const RopeAttentionArgs& args) {
    return name_of(attention_kernels().find(traits, args.attention));
  };
  const auto rotate_and_attend = [&](const RopeAttentionArgs& args) {
    return name_of(rope_attention_kernels().find(traits, args));
  };
  for (const int32_t dim : {32, 64, 80, 96, 128, 256}) {
    lines.push_back(
        fmt::format("d {} attention: {}", dim, decode_choices(traits, {.head_dim = dim}, attend)));
    lines.push_back(fmt::format("d {} rope_attention: {}", dim,
                                decode_choices(traits, {.head_dim = dim}, rotate_and_attend)));
    lines.push_back(fmt::format(
        "d {} rope_attention of rows that meet: {}", dim,
        decode_choices(traits, {.head_dim = dim, .rows_meet = true}, rotate_and_attend)));
  }
  for (const int32_t dim : {64, 80, 96, 112, 128, 256}) {
    const DecodeStep step{.head_dim = dim, .alibi = true};
    lines.push_back(
        fmt::format("d {} attention with ALiBi: {}", dim, decode_choices(traits, step, attend)));
    lines.push_back(fmt::format("d {} rope_attention with ALiBi: {}", dim,
                                decode_choices(traits, step, rotate_and_attend)));
  }
  for (const auto& [dim, v_dim] : {std::pair(192, 128), {128, 64}}) {
    const DecodeStep step{.head_dim = dim, .v_dim = v_dim};
    lines.push_back(fmt::format("d {}, of values {}, attention: {}", dim, v_dim,
                                decode_choices(traits, step, attend)));
    lines.push_back(fmt::format("d {}, of values {}, rope_attention: {}", dim, v_dim,
                                decode_choices(traits, step, rotate_and_attend)));
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t vocabulary : {32000, 128256, 262144, 500000, 1000000, 1 << 20}) {
      const std::string found = runs(kRows, [&](int64_t m) {
        DeviceSampleArgs args{};
        args.logits = Rows().of(dtype, m, vocabulary);
        return name_of(device_sample_kernels().find(traits, args));
      });
      lines.push_back(fmt::format("{} {} device_sample: {}", dtype_name(dtype), vocabulary, found));
    }
  }
  return lines;
}

// By how many tokens there are, `used` experts each.
Lines experts_on_a_gpu(const DeviceTraits& traits) {
  struct Shape {
    int64_t experts, used, n, k;
    bool gated;
  };
  FakeGpu gpu;
  const Rows rows;
  Lines lines;
  for (const Shape& of : {Shape{128, 8, 1536, 2048, true},
                          {128, 8, 2048, 768, false},
                          {8, 2, 28672, 4096, true},
                          {6, 2, 48, 32, true}}) {
    const LinearWeight weight =
        LinearWeight::matrix_at(gpu, rows.of(DType::kBF16, of.experts * of.n, of.k));
    const std::vector<int32_t> starts(static_cast<size_t>(of.experts) + 1);
    const std::string found = runs(kRows, [&](int64_t m) {
      GroupedLinearArgs args;
      args.x = rows.of(DType::kBF16, m * of.used, of.k);
      args.weight = &weight;
      args.starts = starts;
      if (of.gated) args.gate = Activation::kSilu;
      args.y = rows.of(DType::kBF16, m * of.used, of.gated ? of.n / 2 : of.n);
      return name_of(grouped_linear_kernels().find(traits, args));
    });
    lines.push_back(fmt::format("{} of {} experts {}x{} grouped_linear: {}", of.used, of.experts,
                                of.n, of.k, found));
  }
  return lines;
}

struct CpuKind {
  const char* name;
  CpuFeatures features;
};
std::vector<CpuKind> cpu_kinds() {
  CpuFeatures baseline, avx2, avx_vnni, avx512, vnni, zen5, xeon, amx;
  avx2.avx2 = true;
  avx_vnni = avx2, avx_vnni.avx_vnni = true;
  avx512 = avx2, avx512.avx512 = true;
  vnni = avx512, vnni.avx512_vnni = true;
  xeon = vnni, xeon.avx512_bf16 = true;
  zen5 = xeon, zen5.fast_bf16_dot = true;
  amx = xeon, amx.amx_bf16 = amx.amx_int8 = true;
  return {{"baseline", baseline}, {"avx2", avx2}, {"avx_vnni", avx_vnni}, {"avx512", avx512},
          {"vnni", vnni},         {"zen5", zen5}, {"xeon", xeon},         {"amx", amx}};
}

// By the shapes alone: no weight is packed.
std::string cpu_line(const DeviceTraits& traits) {
  const Rows memory;
  const TensorView row = memory.of(DType::kF32, 1, 64);
  const auto* const norm_weight = reinterpret_cast<const float*>(memory.at);
  const int32_t table[64] = {};
  const auto attend_kept_as = [&](KvFormat format, int64_t rows) {
    const AttentionSequence sequence{
        .row_count = static_cast<int32_t>(rows), .kv_length = 1024, .block_table = table};
    const TensorView q = memory.of(DType::kF32, rows, 9 * 64);
    AttentionArgs args;
    args.q = args.out = q;
    args.kv = {.k_format = format,
               .v_format = format,
               .base = memory.at,
               .kv_heads = 3,
               .k_dim = 64,
               .v_dim = 64};
    args.sequences = {&sequence, 1};
    args.scale = 0.125f;
    return name_of(attention_kernels().find(traits, args));
  };
  const auto attend = [&](int64_t rows) {
    std::string name = attend_kept_as(KvFormat::kF16, rows);
    EXPECT_EQ(attend_kept_as(KvFormat::kInt8, rows), name);
    return name;
  };
  const LinearWeight weight;
  const std::string linear =
      name_of(linear_kernels().find(traits, {.x = row, .weight = &weight, .y = row}));
  return fmt::format(
      "{}; {}; {}; {}; {}; {}; {}; {}", linear, runs({1, 16, 512}, attend),
      name_of(rms_norm_kernels().find(traits, {row, {}, norm_weight, 1e-5f, row})),
      name_of(gated_activation_kernels().find(traits, {.gate_up = row, .out = row})),
      name_of(activation_kernels().find(traits, {})), name_of(soft_cap_kernels().find(traits, {})),
      name_of(sample_kernels().find(traits, {})), name_of(rope_kv_kernels().find(traits, {})));
}

Lines cpu_choices() {
  Lines lines;
  for (const CpuKind& kind : cpu_kinds()) {
    for (const bool invariant : {false, true}) {
      const DeviceTraits traits{.cpu = kind.features, .batch_invariant = invariant};
      lines.push_back(fmt::format("{}{}: {}", kind.name, invariant ? " batch-invariant" : "",
                                  cpu_line(traits)));
    }
  }
  return lines;
}

// The lines of one part of the file beside this one.
Lines expected(const std::string& part) {
  std::ifstream file("src/ops/kernel_choices.txt");
  CHECK(file.good());
  Lines lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('[')) {
      inside = line == '[' + part + ']';
    } else if (inside && !line.empty()) {
      lines.push_back(line);
    }
  }
  return lines;
}

void expect_choices(const std::string& part, const Lines& found) {
  const Lines lines = expected(part);
  ASSERT_EQ(found.size(), lines.size()) << part;
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(found[i], lines[i]) << part;
}

TEST(KernelChoice, OfEveryKindOfCpu) { expect_choices("CPUs", cpu_choices()); }

TEST(KernelChoice, OfAnH200) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no CUDA";
  GpuLines found = weights_on_a_gpu();
  std::ranges::copy(others_on_a_gpu(h200(false)), std::back_inserter(found.free));
  std::ranges::copy(others_on_a_gpu(h200(true)), std::back_inserter(found.invariant));
  std::ranges::copy(experts_on_a_gpu(h200(false)), std::back_inserter(found.free));
  std::ranges::copy(experts_on_a_gpu(h200(true)), std::back_inserter(found.invariant));
  expect_choices("H200", found.free);
  expect_choices("H200, batch-invariant", found.invariant);
}

}  // namespace
}  // namespace headrace::kernel_choice_test
