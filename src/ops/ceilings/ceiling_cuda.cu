// Reading device memory and nothing else.
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/ceilings/ceiling.h"

namespace headrace {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;          // of 16 bytes, on their way at a time in every thread
constexpr int kBlocksPerUnit = 4;  // 2,048 threads: all that a multiprocessor holds

// Tiles of kThreads * kLoads accesses, one block after the other. The sum is stored where nothing
// sensible ever leads, so that the loads are not left out.
__global__ void __launch_bounds__(kThreads)
    read_all(const uint4* data, int64_t tiles, uint32_t* never) {
  uint32_t sum = 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint4* at = data + tile * (kThreads * kLoads) + threadIdx.x;
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) loaded[i] = __ldcs(at + i * kThreads);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      sum ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  if (sum == 0x9e3779b9u && blockIdx.x > (1u << 30)) *never = sum;
}

}  // namespace

void read_all_cuda(Stream& stream, int32_t sm_count, std::span<const std::byte> bytes) {
  const auto tiles = static_cast<int64_t>(bytes.size() / (kThreads * kLoads * sizeof(uint4)));
  read_all<<<static_cast<unsigned>(sm_count * kBlocksPerUnit), kThreads, 0,
             static_cast<cudaStream_t>(stream.native())>>>(
      reinterpret_cast<const uint4*>(bytes.data()), tiles, nullptr);
}

}  // namespace headrace
