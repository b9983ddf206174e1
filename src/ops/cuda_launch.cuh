// What the CUDA kernels of every op share: element types from a DType, rows of a matrix as a kernel
// gets them, and the questions a launch asks of them. Included by *_cuda.cu files alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/overlapped_launch.cuh"
#include "gpu/vector.cuh"
#include "ops/op.h"
#include "tensor/cuda_fault.h"

namespace headrace::gpu {

template <class T>
struct ElementType {
  using type = T;
};

// body(ElementType<T>()) for the float type that `dtype` is.
template <class Body>
void with_float_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(ElementType<float>());
    case DType::kF16:
      return body(ElementType<__half>());
    case DType::kBF16:
      return body(ElementType<__nv_bfloat16>());
    default:
      CHECK_MSG(false, "CUDA kernels compute on F32, F16 and BF16");
  }
}

template <class T>
struct RowsOf {
  T* data;
  int64_t stride;  // elements

  __device__ __forceinline__ T* row(int64_t i) const { return data + i * stride; }
};

template <class T>
RowsOf<T> rows_of(const TensorView& view) {
  return {reinterpret_cast<T*>(view.data), view.row_stride / static_cast<int64_t>(sizeof(T))};
}
template <class T>
RowsOf<const T> rows_of(const ConstTensorView& view) {
  return {reinterpret_cast<const T*>(view.data), view.row_stride / static_cast<int64_t>(sizeof(T))};
}

inline bool multiple_of_access(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kAccessBytes == 0;
}
// Whether every row starts on 16 bytes; true for no data.
template <class View>
bool rows_aligned(const View& view) {
  return multiple_of_access(view.data) && view.row_stride % kAccessBytes == 0;
}
// Whether `columns` elements are whole accesses of 16 bytes.
inline bool whole_accesses(DType dtype, int64_t columns) {
  return columns * dtype_info(dtype).block_bytes % kAccessBytes == 0;
}

inline cudaStream_t stream_of(const OpContext& context) {
  return static_cast<cudaStream_t>(context.stream.native());
}

// Behind a launch on the stream: a fault fails it, and its owner hears of it; the rest are bugs.
inline void check_launch(Stream& stream, cudaError_t error) {
  if (is_cuda_fault(error)) return stream.fail(cuda_fault(error));
  CHECK_MSG(error == cudaSuccess, cudaGetErrorString(error));
}

// Launches a kernel that lets the next one start and waits for the ones before it
// (overlapped_launch.cuh).
template <class... Parameters>
void launch(OpContext& context, void (*kernel)(Parameters...), dim3 blocks, int threads,
            const std::type_identity_t<Parameters>&... arguments) {
  check_launch(context.stream, launch_overlapped(kernel, {.blocks = blocks, .threads = threads},
                                                 stream_of(context), arguments...));
}

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace headrace::gpu
