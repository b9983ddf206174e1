#include "tensor/cuda_fault.h"

#include <cstddef>

#include <fmt/format.h>

namespace headrace {

// Whatever is not known to be the caller's is the device's: its requests end, and nothing wrong is
// delivered.
bool is_cuda_fault(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorMissingConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
      return false;
    default:
      return true;
  }
}

std::string cuda_error_text(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

Status cuda_fault(cudaError_t error) { return internal_error("CUDA: " + cuda_error_text(error)); }

// A call that waits for nothing and changes nothing, and that a lost device refuses as all others.
cudaError_t cuda_device_state() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total);
}

}  // namespace headrace
