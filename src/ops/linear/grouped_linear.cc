#include "ops/linear/grouped_linear.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const GroupedLinearArgs& args) {
  CHECK(args.weight != nullptr && args.starts.size() >= 2);
  CHECK(args.weight->n() % args.experts() == 0);
  CHECK(args.x.shape.rank() == 2 && args.x.columns() == args.weight->k());
  CHECK(args.y.dtype == args.x.dtype);
  const int64_t outputs = args.gate ? args.expert_rows() / 2 : args.expert_rows();
  CHECK(!args.gate || args.expert_rows() % 2 == 0);
  CHECK(args.y.shape.rank() == 2 && args.y.columns() == outputs);
  const int64_t listed = args.rows.empty() ? args.x.rows() : std::ssize(args.rows);
  CHECK(args.y.rows() == listed);
}

}  // namespace

const KernelSet<GroupedLinearArgs>& grouped_linear_kernels() {
  static const KernelSet<GroupedLinearArgs> set(
      {grouped_linear_cuda_kernels(), grouped_linear_cpu_kernels()});
  return set;
}

OpCost op_cost(const GroupedLinearArgs& args) {
  const int64_t rows = args.rows_about(), n = args.expert_rows(), k = args.weight->k();
  const DType dtype = args.weight->main_dtype();
  return {.shape = fmt::format("{} of {} x {} {}", args.experts(), n, k, dtype_name(dtype)),
          .rows = rows,
          .bytes = args.weight->packed_bytes() + bytes_of(args.x) + bytes_of(args.y),
          .flops = 2 * rows * n * k,
          .type = dtype == DType::kBF16 ? "bf16" : "f32"};
}

void grouped_linear(OpContext& context, const GroupedLinearArgs& args) {
  check_args(args);
  if (args.y.rows() == 0) return;
  run_op(context, grouped_linear_kernels(), args);
}

}  // namespace headrace
