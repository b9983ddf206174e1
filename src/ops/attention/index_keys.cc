#include "ops/attention/index_keys.h"

#include <fmt/format.h>

namespace headrace {
namespace {

void check_args(const IndexKeysArgs& args) {
  const int64_t tokens = args.keys.rows(), dim = args.cache.index_dim;
  CHECK(dim > 0 && args.keys.columns() == dim && args.keys.dtype == DType::kF32);
  CHECK(args.queries.rows() == tokens && args.queries.columns() % dim == 0);
  CHECK(2 * args.cos.columns() <= dim);
  CHECK(args.cos.rows() == tokens && args.cos.shape == args.sin.shape);
  CHECK((args.norm == nullptr) == (args.norm_bias == nullptr));
  CHECK(static_cast<int64_t>(args.slots.size()) == tokens);
}

}  // namespace

const KernelSet<IndexKeysArgs>& index_keys_kernels() {
  static const KernelSet<IndexKeysArgs> set({index_keys_cuda_kernels(), index_keys_cpu_kernels()});
  return set;
}

OpCost op_cost(const IndexKeysArgs& args) {
  OpCost cost = row_op_cost(args.keys.rows(), args.keys.columns(),
                            2 * bytes_of(args.keys) + 2 * bytes_of(args.queries));
  cost.shape = fmt::format("{} heads of {}", args.queries.columns() / args.cache.index_dim,
                           args.cache.index_dim);
  return cost;
}

void index_keys(OpContext& context, const IndexKeysArgs& args) {
  check_args(args);
  CHECK(is_activation(context.device, args.queries.dtype));
  CHECK((args.norm != nullptr && args.rotates_keys) || context.device.kind() == DeviceKind::kCpu);
  if (args.keys.rows() == 0) return;
  run_op(context, index_keys_kernels(), args);
}

}  // namespace headrace
