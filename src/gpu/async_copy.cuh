// Copies from device memory to shared memory that a thread asks for and does not wait for
// (cp.async, sm_80). Ordinary accesses see them after copies_wait(), those of other threads after a
// barrier beside.
#pragma once

#include <cstdint>

namespace headrace::gpu {

// 16 bytes; zeros, and nothing is read, where not `there`. REQUIRES: both on 16 bytes
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
}
// Until all that this thread asked for has come.
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace headrace::gpu
