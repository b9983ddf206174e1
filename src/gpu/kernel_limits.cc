#include "gpu/kernel_limits.h"

#include <mutex>
#include <set>
#include <utility>

namespace headrace::gpu {
namespace {

// More shared memory than 48 KB has to be asked for; a kernel may have some KB that are static.
constexpr int kGivenBytes = 40 << 10;

// Never to one launch's bytes: threads that launch a kernel with other sizes share its limit, and
// one would lower it between the other's call and its launch.
cudaError_t set_limits(const void* kernel, int device, Carveout carveout) {
  int block_bytes = 0;
  cudaFuncAttributes attributes{};
  cudaError_t error =
      cudaDeviceGetAttribute(&block_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 block_bytes - static_cast<int>(attributes.sharedSizeBytes));
  }
  if (error == cudaSuccess && carveout == Carveout::kAllShared) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  }
  return error;
}

}  // namespace

cudaError_t set_kernel_limits(const void* kernel, int shared_bytes, Carveout carveout) {
  if (shared_bytes <= kGivenBytes && carveout == Carveout::kDriversChoice) return cudaSuccess;
  static std::mutex mutex;
  static std::set<std::pair<const void*, int>> done;  // CUDA's own state has one for the process
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::lock_guard lock(mutex);
  if (done.contains({kernel, device})) return cudaSuccess;
  const cudaError_t error = set_limits(kernel, device, carveout);
  if (error == cudaSuccess) done.emplace(kernel, device);
  return error;
}

}  // namespace headrace::gpu
