// What the kernels of plain.h share: their arguments, and the end of an element of y.
#pragma once

#include "ops/cuda_launch.cuh"
#include "ops/linear/linear.h"

namespace headrace::gpu {

template <class T, class Y>
struct PlainArguments {
  RowsOf<const T> x;
  const T* weight;  // [N, K]
  const float* bias;
  RowsOf<Y> y;
  int32_t m, n, k;
  bool accumulates;
};

// Calls body with the arguments for the element types of x and y. REQUIRES: plain_types(args)
template <class Body>
void with_plain_types(const LinearArgs& args, const Body& body) {
  with_float_type(args.x.dtype, [&]<class T>(ElementType<T>) {
    const auto make = [&]<class Y>(ElementType<Y>) {
      body(PlainArguments<T, Y>{.x = rows_of<T>(args.x),
                                .weight = reinterpret_cast<const T*>(args.weight->matrix().data),
                                .bias = args.bias,
                                .y = rows_of<Y>(args.y),
                                .m = static_cast<int32_t>(args.x.rows()),
                                .n = static_cast<int32_t>(args.weight->n()),
                                .k = static_cast<int32_t>(args.weight->k()),
                                .accumulates = args.output == LinearOutput::kAccumulate});
    };
    if (args.y.dtype == DType::kF32) return make(ElementType<float>());
    make(ElementType<T>());
  });
}

template <class T, class Y>
__device__ void finish_plain(const PlainArguments<T, Y>& args, int32_t row, int32_t column,
                             float sum) {
  Y& y = args.y.row(row)[column];
  if (args.bias != nullptr) sum += args.bias[column];
  if (args.accumulates) sum += to_float(y);
  y = from_float<Y>(sum);
}

inline bool plain_types(const DeviceTraits& traits, const LinearArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.weight->is_matrix_of(args.x.dtype) &&
         (args.y.dtype == args.x.dtype || args.y.dtype == DType::kF32);
}
inline bool plain_aligned(const LinearArgs& args) {
  return whole_accesses(args.x.dtype, args.x.columns()) && rows_aligned(args.x) &&
         rows_aligned(args.weight->matrix());
}

}  // namespace headrace::gpu
