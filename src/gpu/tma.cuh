// The bulk tensor copy engine of Hopper (sm_90) and the barriers in shared memory on which its
// copies complete. PTX ISA 8.0: mbarrier, cp.async.bulk.tensor.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace headrace::gpu {

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// A barrier in shared memory. A phase completes when `arrivals` threads have arrived and all bytes
// that were expected have been copied; phases are told apart by their parity, the first is 0.
struct Barrier {
  uint64_t state;

  __device__ __forceinline__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)),
                 "r"(arrivals));
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state))
                 : "memory");
  }
  // Arrives, and adds `bytes` to what this phase waits for.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)),
        "r"(bytes)
        : "memory");
  }
  __device__ __forceinline__ void wait(uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(&state)),
        "r"(parity)
        : "memory");
  }
};

// After init(), before other threads or the copy engine use the barriers.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Ordinary accesses of this thread to shared memory before, the engines' after.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}

// One box of a tensor into shared memory; its bytes count towards `barrier`.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, Barrier& barrier,
                                         int32_t c0, int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier.state)), "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, Barrier& barrier,
                                         int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier.state)), "r"(c0), "r"(c1),
      "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, Barrier& barrier,
                                         int32_t c0, int32_t c1, int32_t c2, int32_t c3,
                                         int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier.state)), "r"(c0), "r"(c1),
      "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// One box of shared memory into a tensor; elements outside of it are dropped. In groups of the
// thread, as products are (wgmma.cuh).
__device__ __forceinline__ void store_box(const CUtensorMap& map, const void* from, int32_t c0,
                                          int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(&map)),
               "r"(shared_address(from)), "r"(c0), "r"(c1)
               : "memory");
}
__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the latest kGroups groups have read shared memory.
template <int kGroups>
__device__ __forceinline__ void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
// Until all but the latest kGroups groups are written.
template <int kGroups>
__device__ __forceinline__ void stores_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace headrace::gpu
