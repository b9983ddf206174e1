// norm_route: RMSNorm, a router's product and its choice as one op, so that a device may make them
// one launch where rows are few.
#pragma once

#include "ops/linear/norm_linear.h"
#include "ops/rows/route_experts.h"

namespace headrace {

struct NormRouteArgs {
  RmsNormArgs norm;        // `out`: what experts multiply
  LinearArgs router;       // of x = norm.out; y are logits
  RouteExpertsArgs route;  // of logits = router.y
};

// Takes norm_route_workspace_bytes() of the context's workspace for the time of the call.
// `three_ops` is rms_norm, linear, route_experts. norm.x is up to date afterwards where there is a
// residual, norm.out and the logits are written whatever kernel runs.
void norm_route(OpContext& context, const NormRouteArgs& args);
int64_t norm_route_workspace_bytes(int64_t rows, const LinearWeight& router,
                                   const RouterRule& rule);
const KernelSet<NormRouteArgs>& norm_route_kernels();
KernelTable<NormRouteArgs> norm_route_cuda_kernels();

}  // namespace headrace
