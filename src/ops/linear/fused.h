// A product with what may stand before and after it in one launch: what the ops norm_linear,
// norm_gated_linear, gated_linear, residual_linear and linear ask of the CUDA kernels that serve
// several of them (resident.h, gemv.h).
#pragma once

#include "ops/linear/norm_linear.h"
#include "ops/linear/residual_linear.h"

namespace headrace {

// y = x W^T (+ bias) (+ y), or act(gate) * up of [gate, up] = x W^T (+ bias); x through `norm`
// first where there is one.
struct FusedLinearArgs {
  ConstTensorView x;
  const RmsNormArgs* norm = nullptr;  // of x; `out` is not used
  const LinearWeight* weight = nullptr;
  const float* bias = nullptr;
  const Activation* gate = nullptr;
  TensorView y;
  LinearOutput output = LinearOutput::kStore;
};

// What a plan of its launch is made from.
struct FusedProduct {
  int64_t m = 0, n = 0, k = 0;  // n: rows of W
  bool gated = false, normed = false;
  int weight_bytes = 2;  // of a number of W
};
inline FusedProduct product_of(const FusedLinearArgs& args) {
  return {.m = args.x.rows(),
          .n = args.weight->n(),
          .k = args.weight->k(),
          .gated = args.gate != nullptr,
          .normed = args.norm != nullptr,
          .weight_bytes = args.weight->is_matrix_of(DType::kF8) ? 1 : 2};
}

// They point into the arguments.
inline FusedLinearArgs fused(const LinearArgs& args) {
  return {
      .x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y, .output = args.output};
}
inline FusedLinearArgs fused(const GatedLinearArgs& args) {
  return {
      .x = args.x, .weight = args.weight, .bias = args.bias, .gate = &args.activation, .y = args.y};
}
inline FusedLinearArgs fused(const NormLinearArgs& args) {
  FusedLinearArgs result = fused(args.linear);
  result.x = args.norm.x;
  result.norm = &args.norm;
  return result;
}
inline FusedLinearArgs fused(const NormGatedLinearArgs& args) {
  FusedLinearArgs result = fused(args.gated);
  result.x = args.norm.x;
  result.norm = &args.norm;
  return result;
}
// REQUIRES: a scale of 1
inline FusedLinearArgs fused(const ResidualLinearArgs& args) {
  return {.x = args.in,
          .weight = args.weight,
          .bias = args.bias,
          .y = args.x,
          .output = LinearOutput::kAccumulate};
}

}  // namespace headrace
