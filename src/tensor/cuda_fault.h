// Which errors of CUDA a correct program meets: the device is lost (a kernel that went astray,
// memory or a link that failed; from then on every call says so), or something ran out. They fail
// the stream that they came up on (Stream::fail()), whose owner asks for its status, and nobody
// else. The others say that a call was written wrongly, and are bugs. Any thread.
//
// Of builds with CUDA alone.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/status.h"

namespace headrace {

// False of cudaSuccess, too.
bool is_cuda_fault(cudaError_t error);
// "an illegal memory access was encountered (cudaErrorIllegalAddress)"
std::string cuda_error_text(cudaError_t error);
// The error of a stream that has met it: kInternal, "CUDA: " and the text.
Status cuda_fault(cudaError_t error);
// What the calling thread's current device says of itself: cudaSuccess, or why it is lost. May be
// called while a stream is recorded.
cudaError_t cuda_device_state();

}  // namespace headrace
