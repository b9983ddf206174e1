// Runs of bytes from device to shared memory by the copy engine (cp.async.bulk, sm_90).
#pragma once

#include "gpu/tma.cuh"

namespace headrace::gpu {

// `bytes` count towards `barrier`. REQUIRES: all three multiples of 16
__device__ __forceinline__ void copy_bytes(void* to, const void* from, uint32_t bytes,
                                           Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier.state))
      : "memory");
}

}  // namespace headrace::gpu
