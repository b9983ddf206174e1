#include "ops/rows/route_experts.h"

namespace headrace {
namespace {

void check_args(const RouteExpertsArgs& args) {
  const RouterRule& rule = args.rule;
  CHECK(rule.used >= 1 && rule.used <= rule.experts);
  CHECK(rule.groups >= 1 && rule.experts % rule.groups == 0 && rule.groups_used >= 1);
  CHECK(rule.used <= rule.experts / rule.groups * rule.groups_used);
  CHECK(args.logits.dtype == DType::kF32 && args.logits.shape.rank() == 2);
  CHECK(args.logits.columns() == rule.logits());
  const auto taken = static_cast<size_t>(args.logits.rows() * rule.networks_of_row());
  CHECK(args.out.starts.size() == static_cast<size_t>(rule.networks()) + 1);
  CHECK(args.out.rows.size() == taken && args.out.weights.size() == taken);
  CHECK(args.out.places.empty() || args.out.places.size() == taken);
  CHECK(args.experts == nullptr || rule.scores != RouterScores::kSparseMixer);
  CHECK(!args.own || (args.own->first >= 0 && args.own->first <= args.own->last &&
                      args.own->last <= rule.experts));
}

}  // namespace

const KernelSet<RouteExpertsArgs>& route_experts_kernels() {
  static const KernelSet<RouteExpertsArgs> set(
      {route_experts_cuda_kernels(), route_experts_cpu_kernels()});
  return set;
}

OpCost op_cost(const RouteExpertsArgs& args) {
  const auto taken =
      static_cast<int64_t>(args.out.rows.size_bytes() + args.out.weights.size_bytes());
  return row_op_cost(args.logits.rows(), args.logits.columns(), bytes_of(args.logits) + taken);
}

int64_t route_experts_workspace_bytes(int64_t rows, const RouterRule& rule) {
  constexpr int64_t kAlignment = 256;
  return 2 * (rows * rule.used * int64_t{sizeof(float)} + kAlignment);
}

void route_experts(OpContext& context, const RouteExpertsArgs& args) {
  check_args(args);
  if (args.logits.rows() == 0 && context.device.kind() == DeviceKind::kCuda) {
    return context.stream.fill_zero(reinterpret_cast<std::byte*>(args.out.starts.data()),
                                    static_cast<int64_t>(args.out.starts.size_bytes()));
  }
  run_op(context, route_experts_kernels(), args);
}

}  // namespace headrace
