// Kernels that start while the one before them on the stream ends (programmatic dependent launch,
// sm_90): what a kernel does before it touches another's results is hidden.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "gpu/kernel_limits.h"

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

struct LaunchShape {
  dim3 blocks;
  int threads;
  int shared_bytes = 0;  // dynamic
  int cluster = 1;       // blocks that run together; divides blocks.x
  Carveout carveout = Carveout::kDriversChoice;
};

template <class... Parameters>
cudaError_t launch_overlapped(void (*kernel)(Parameters...), const LaunchShape& shape,
                              cudaStream_t stream,
                              const std::type_identity_t<Parameters>&... arguments) {
  const cudaError_t error =
      set_kernel_limits(reinterpret_cast<const void*>(kernel), shape.shared_bytes, shape.carveout);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace headrace::gpu
