// Copies from device to shared memory by ordinary threads, 16 bytes at a time, that pass through no
// register (cp.async, sm_80).
#pragma once

#include "gpu/tma.cuh"

namespace headrace::gpu {

// REQUIRES: both on 16 bytes
__device__ __forceinline__ void copy_access(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
// What this thread has asked for since the last such call is a group; groups are there in order.
__device__ __forceinline__ void end_group_of_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all groups of this thread but the last kCount are there, for this thread; a barrier shows
// them to others.
template <int kCount>
__device__ __forceinline__ void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kCount) : "memory");
}
// Arrives at `barrier` when all that this thread has asked for is there: one of the arrivals for
// which it was made.
__device__ __forceinline__ void arrive_after_copies(Barrier& barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier.state))
      : "memory");
}

}  // namespace headrace::gpu
