#include "tensor/gpu_kind.h"

#include <fmt/format.h>

namespace headrace {

Status check_gpu_kind(int index, std::string_view name, int32_t compute_capability) {
  if (compute_capability == kGpuComputeCapability) return ok_status();
  return unsupported(
      fmt::format("GPU {} is an {} of compute capability {}.{}: this program has kernels for {}.{} "
                  "alone (H100, "
                  "H200, GH200); use such a GPU (--device cuda:N) or --device cpu",
                  index, name, compute_capability / 10, compute_capability % 10,
                  kGpuComputeCapability / 10, kGpuComputeCapability % 10));
}

bool auto_takes_cpu(const Status& gpu) { return gpu.code() == StatusCode::kUnsupported; }

}  // namespace headrace
