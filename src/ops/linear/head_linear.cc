#include "ops/linear/head_linear.h"

#include <array>
#include <vector>

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const HeadLinearArgs& args) {
  CHECK(args.weight != nullptr && args.heads > 0 && args.weight->n() % args.heads == 0);
  CHECK(args.x.rows() == args.y.rows() && args.x.dtype == args.y.dtype);
  CHECK(args.x.columns() % args.heads == 0 && args.x.columns() / args.heads >= args.weight->k());
  CHECK(args.y.columns() % args.heads == 0 && args.y.columns() / args.heads >= args.head_rows());
}

// The definition, for the tests of other kernels: on a CPU latent attention multiplies head by head
// (models/parts/latent_attention_mixer.h).
void multiply_plainly(OpContext&, const HeadLinearArgs& args) {
  const int64_t n = args.head_rows(), k = args.weight->k();
  const int64_t x_step = args.x.columns() / args.heads, y_step = args.y.columns() / args.heads;
  std::vector<float> weight(static_cast<size_t>(k));
  for (int64_t i = 0; i < args.weight->n(); ++i) {
    const int64_t head = i / n;
    args.weight->read_row(i, weight.data());
    for (int64_t t = 0; t < args.x.rows(); ++t) {
      const float* const x = f32_row(args.x, t) + head * x_step;
      double sum = 0;
      for (int64_t c = 0; c < k; ++c) sum += double{weight[static_cast<size_t>(c)]} * x[c];
      f32_row(args.y, t)[head * y_step + i % n] = static_cast<float>(sum);
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const HeadLinearArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kHeadLinearKernels = {
    Kernel<HeadLinearArgs>{"head_linear/cpu/reference", any_cpu, multiply_plainly}};

}  // namespace

KernelTable<HeadLinearArgs> head_linear_cpu_kernels() { return kHeadLinearKernels; }

const KernelSet<HeadLinearArgs>& head_linear_kernels() {
  static const KernelSet<HeadLinearArgs> set(
      {head_linear_cuda_kernels(), head_linear_cpu_kernels()});
  return set;
}

OpCost op_cost(const HeadLinearArgs& args) {
  const int64_t rows = args.y.rows(), n = args.head_rows(), k = args.weight->k();
  const DType dtype = args.weight->main_dtype();
  return {.shape = fmt::format("{} heads of {} x {} {}", args.heads, n, k, dtype_name(dtype)),
          .rows = rows,
          .bytes = args.weight->packed_bytes() +
                   rows * args.heads * (n + k) * dtype_info(args.x.dtype).block_bytes,
          .flops = 2 * rows * args.heads * n * k,
          .type = dtype == DType::kBF16 ? "bf16" : "f32"};
}

void head_linear(OpContext& context, const HeadLinearArgs& args) {
  check_args(args);
  if (args.y.rows() == 0) return;
  run_op(context, head_linear_kernels(), args);
}

}  // namespace headrace
