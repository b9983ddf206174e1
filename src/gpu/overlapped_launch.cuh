// Kernels that start while the one before them on the stream ends (programmatic dependent launch,
// sm_90): what a kernel does before it touches another's results is hidden.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

namespace headrace::gpu {

// In a kernel launched by launch_overlapped(): until all kernels before have ended and what they
// wrote is visible. Before it, a kernel may read only what was complete before the kernel that
// precedes it started (parameters, tables uploaded for the step), and write nothing.
__device__ __forceinline__ void wait_for_earlier_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next kernel may start as soon as every thread block of this one has come here or ended, and
// finds room beside it.
__device__ __forceinline__ void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Launches `blocks` x `threads` with `shared_bytes` of dynamic shared memory.
template <class... Parameters>
cudaError_t launch_overlapped(void (*kernel)(Parameters...), int blocks, int threads,
                              int shared_bytes, cudaStream_t stream,
                              const std::type_identity_t<Parameters>&... arguments) {
  // Beyond 48 KB, a kernel's dynamic shared memory has to be asked for.
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace headrace::gpu
