// Rows of x as kernels that lay them out for a product read them: as they are, as rms_norm makes
// them (norm_linear.h), or act(gate) * up (activated_linear.h), rounded to their type as those ops
// round. Eight numbers an access.
#pragma once

#include "ops/cuda_launch.cuh"
#include "ops/linear/activated_linear.h"
#include "ops/rows/activation_cuda.cuh"
#include "ops/rows/rms_norm.h"

namespace headrace::gpu {

enum class RowsOfX { kPlain, kNormed, kGated };

template <class T>
struct MadeRows {
  RowsOf<T> x;               // written where there is a residual; kGated: gate, then up
  RowsOf<const T> residual;  // as of RmsNormArgs, or no data
  const float* norm;         // [K]
  int32_t m, k;
  float eps, residual_scale;
  Activation activation;
};

// --- of the host: what each op asks for ---

template <class Source>
inline constexpr RowsOfX kRowsOf = RowsOfX::kPlain;
template <>
inline constexpr RowsOfX kRowsOf<RmsNormArgs> = RowsOfX::kNormed;
template <>
inline constexpr RowsOfX kRowsOf<GatedActivationArgs> = RowsOfX::kGated;

inline const ConstTensorView& read_rows(const ConstTensorView& x) { return x; }
inline ConstTensorView read_rows(const RmsNormArgs& norm) { return norm.x; }
inline ConstTensorView read_rows(const GatedActivationArgs& gates) { return gates.gate_up; }

template <class T>
MadeRows<T> rows_to_make(const ConstTensorView& read, int64_t k) {
  const TensorView rows(const_cast<std::byte*>(read.data), read.dtype, read.shape, read.row_stride);
  return {.x = rows_of<T>(rows),
          .residual = {},
          .norm = nullptr,
          .m = static_cast<int32_t>(read.rows()),
          .k = static_cast<int32_t>(k),
          .eps = 0.0f,
          .residual_scale = 1.0f,
          .activation = Activation::kSilu};
}
template <class T>
MadeRows<T> made_rows(const ConstTensorView& x) {
  return rows_to_make<T>(x, x.columns());
}
template <class T>
MadeRows<T> made_rows(const RmsNormArgs& norm) {
  MadeRows<T> rows = rows_to_make<T>(norm.x, norm.x.columns());
  rows.residual = rows_of<T>(norm.residual);
  rows.norm = norm.weight;
  rows.eps = norm.eps;
  rows.residual_scale = norm.residual_scale;
  return rows;
}
template <class T>
MadeRows<T> made_rows(const GatedActivationArgs& gates) {
  MadeRows<T> rows = rows_to_make<T>(gates.gate_up, gates.out.columns());
  rows.activation = gates.activation;
  return rows;
}

// 16 bytes an access, one group of columns.
inline bool norm_fits_made_rows(const RmsNormArgs& norm) {
  return norm.groups == 1 && rows_aligned(norm.x) && rows_aligned(norm.residual) &&
         multiple_of_access(norm.weight);
}
// 16 bytes an access, an activation that with_gate() has.
inline bool gates_fit_made_rows(const GatedActivationArgs& args) {
  const Activation of = args.activation;
  return of != Activation::kTanh && of != Activation::kSigmoid && of != Activation::kXielu &&
         args.up.data == nullptr && whole_accesses(args.gate_up.dtype, args.out.columns()) &&
         rows_aligned(args.gate_up);
}

// --- of the device: eight numbers ---

// body.operator()<Act>()
template <class Body>
__device__ __forceinline__ void with_gate(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kSilu:
      return body.template operator()<Silu>();
    case Activation::kGeluTanh:
      return body.template operator()<GeluTanh>();
    case Activation::kRelu:
      return body.template operator()<Relu>();
    case Activation::kReluSquared:
      return body.template operator()<ReluSquared>();
    case Activation::kClampedSwish:
      return body.template operator()<ClampedSwish>();
    default:
      return body.template operator()<GeluErf>();
  }
}

template <class T>
__device__ __forceinline__ void add_residual(Vector<T, 8>& values, const Vector<T, 8>& added,
                                             float scale) {
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    values.values[e] =
        from_float<T>(to_float(values.values[e]) + scale * to_float(added.values[e]));
  }
}
// As rms_norm does, rounded to T.
template <class T>
__device__ __forceinline__ void normalise(Vector<T, 8>& values, float factor,
                                          const Vector<float, 8>& weights) {
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    values.values[e] = from_float<T>(to_float(values.values[e]) * factor * weights.values[e]);
  }
}
// gate := act(gate) * up, as gated_activation does.
template <class Act, class T>
__device__ __forceinline__ void apply_gates(Vector<T, 8>& gates, const Vector<T, 8>& ups) {
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float up = up_of<Act>(to_float(ups.values[e]));
    gates.values[e] = from_float<T>(Act::apply(to_float(gates.values[e])) * up);
  }
}
template <class T>
__device__ __forceinline__ float sum_of_squares(const Vector<T, 8>& values) {
  float squares = 0.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float value = to_float(values.values[e]);
    squares += value * value;
  }
  return squares;
}

}  // namespace headrace::gpu
