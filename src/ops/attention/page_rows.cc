#include "ops/attention/page_rows.h"

namespace headrace {
namespace {

void check_args(const PageRowsArgs& args) {
  CHECK(args.rows.shape.rank() == 2 && args.rows.rows() == std::ssize(args.slots));
  CHECK(args.rows.columns() <= page_row_components(args.kv));
}

}  // namespace

const KernelSet<PageRowsArgs>& page_rows_kernels() {
  static const KernelSet<PageRowsArgs> set({page_rows_cuda_kernels(), page_rows_cpu_kernels()});
  return set;
}

OpCost op_cost(const PageRowsArgs& args) {
  return row_op_cost(args.rows.rows(), args.rows.columns(), 2 * bytes_of(args.rows));
}

void page_rows(OpContext& context, const PageRowsArgs& args) {
  check_args(args);
  if (args.rows.rows() == 0) return;
  run_op(context, page_rows_kernels(), args);
}

}  // namespace headrace
