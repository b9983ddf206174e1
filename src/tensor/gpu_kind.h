// Which GPUs this program has kernels for.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace headrace {

// Machine code for Hopper alone: its copy engine, its warpgroups' products, its clusters of blocks.
// No more than that: code for 9.0a runs on no later GPU.
inline constexpr int32_t kGpuComputeCapability = 90;

// kUnsupported, naming the GPU and what to do, where there is none for it.
Status check_gpu_kind(int index, std::string_view name, int32_t compute_capability);

// Whether `--device auto` takes the CPU after this came of creating the first GPU's device: another
// fault than its kind is a fault.
bool auto_takes_cpu(const Status& gpu);

}  // namespace headrace
