// Thread block clusters (sm_90): blocks that run at the same time and read each other's shared
// memory. PTX ISA 8.0: barrier.cluster, mapa, ld.shared::cluster, cp.async.bulk.tensor multicast.
#pragma once

#include <cstdint>

#include "gpu/tma.cuh"

namespace headrace::gpu {

// This block's number in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks of the cluster; shared memory written before is seen after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where block `rank` of the cluster has what this block has at `address` of its shared memory.
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
// Arrives at the barrier that block `rank` of the cluster has where this block has `barrier`. What
// this thread wrote is not said to be seen there: with .release.cluster an arrival waits for a
// fence of the whole device, which one that only gives back what the copy engine wrote does not
// need.
__device__ __forceinline__ void arrive_in_block(Barrier& barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   address_in_block(shared_address(&barrier.state), rank))
               : "memory");
}
// As copy_box(), to every block of the cluster whose bit is set in `blocks`, at this block's
// address in each; the bytes count towards the barrier at `barrier` in each.
__device__ __forceinline__ void copy_box_to_blocks(void* to, const CUtensorMap& map,
                                                   Barrier& barrier, uint16_t blocks, int32_t c0,
                                                   int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier.state)), "h"(blocks),
      "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void copy_box_to_blocks(void* to, const CUtensorMap& map,
                                                   Barrier& barrier, uint16_t blocks, int32_t c0,
                                                   int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(shared_address(&barrier.state)), "h"(blocks),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}
// As copy_bytes() (bulk_copy.cuh), to blocks in the same way.
__device__ __forceinline__ void copy_bytes_to_blocks(void* to, const void* from, uint32_t bytes,
                                                     Barrier& barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier.state)),
      "h"(blocks)
      : "memory");
}
__device__ __forceinline__ float2 load_pair_of_cluster(uint32_t address) {
  float2 pair;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}

__device__ __forceinline__ uint32_t load_word_of_cluster(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}
__device__ __forceinline__ uint64_t load_long_of_cluster(uint32_t address) {
  uint64_t value;
  asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ uint4 load_words_of_cluster(uint32_t address) {
  uint4 words;
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(address)
               : "memory");
  return words;
}

}  // namespace headrace::gpu
