#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include "tensor/peer_access.h"

namespace headrace {

Result<bool> reach_peer(int from, int to) {
  int can = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can, from, to);
  if (error == cudaSuccess && can == 0) return false;
  if (error == cudaSuccess) error = cudaSetDevice(from);
  if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    error = cudaSuccess;
  }
  if (error == cudaSuccess) return true;
  return unavailable(fmt::format("GPU {} cannot be given the memory of GPU {}: {}", from, to,
                                 cudaGetErrorString(error)));
}

}  // namespace headrace
