#include "ops/linear/norm_route.h"

#include <algorithm>

namespace headrace {
namespace {

bool any_route(const DeviceTraits&, const NormRouteArgs&) { return true; }

void run_three_ops(OpContext& context, const NormRouteArgs& args) {
  rms_norm(context, args.norm);
  linear(context, args.router);
  route_experts(context, args.route);
}

constexpr Kernel<NormRouteArgs> kThreeOps[] = {{"norm_route/three_ops", any_route, run_three_ops}};

void check_args(const NormRouteArgs& args) {
  const ConstTensorView& x = args.router.x;
  CHECK(args.norm.weight != nullptr && x.data == args.norm.out.data);
  CHECK(args.norm.x.shape == x.shape && args.norm.x.dtype == x.dtype);
  CHECK(args.route.logits.data == args.router.y.data);
}

}  // namespace

const KernelSet<NormRouteArgs>& norm_route_kernels() {
  static const KernelSet<NormRouteArgs> set({norm_route_cuda_kernels(), kThreeOps});
  return set;
}

int64_t norm_route_workspace_bytes(int64_t rows, const LinearWeight& router,
                                   const RouterRule& rule) {
  return std::max(linear_workspace_bytes(rows, router), route_experts_workspace_bytes(rows, rule));
}

void norm_route(OpContext& context, const NormRouteArgs& args) {
  check_args(args);
  if (args.norm.x.rows() == 0) return;
  choose_kernel(context, norm_route_kernels(), args).run(context, args);
}

}  // namespace headrace
