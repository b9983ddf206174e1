// What a kernel may take of a multiprocessor, which CUDA keeps with the kernel and not with a
// launch.
#pragma once

#include <cuda_runtime_api.h>

namespace headrace::gpu {

// How a multiprocessor divides its memory between L1 cache and shared memory while a kernel runs.
enum class Carveout { kDriversChoice, kAllShared };

// Before a launch with `shared_bytes` of dynamic shared memory: the first time for each kernel and
// device, the kernel gets all that the device has for a block beside its static shared memory, and
// the carveout, which is the same at each of its launches. Any thread.
cudaError_t set_kernel_limits(const void* kernel, int shared_bytes, Carveout carveout);

}  // namespace headrace::gpu
