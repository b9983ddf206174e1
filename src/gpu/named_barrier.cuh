// Barriers of a thread block by number, 1 to 15 (0 is __syncthreads()), that some of its threads
// meet at. PTX ISA: bar.sync, bar.arrive.
#pragma once

#include <cuda_runtime.h>

namespace headrace::gpu {

// `threads`: of all that sync and arrive, whole warps.
__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Does not wait for the others.
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace headrace::gpu
