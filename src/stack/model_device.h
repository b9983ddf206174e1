// The device that a stack runs on.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

// Whether a GPU is asked for, or there is one to take.
bool takes_gpu(const DeviceOptions& options);

// A GPU that cannot be used is an error where it is asked for by name, and the CPU's turn under
// kAuto where auto_takes_cpu() says so.
Result<std::unique_ptr<Device>> create_device(const DeviceOptions& options);
// That one, or those of --tensor-parallel-size ranks: a GPU each, or CPUs that share the threads
// out, as those of --pipeline-parallel-size stages do.
Result<std::vector<std::unique_ptr<Device>>> create_devices(const DeviceOptions& options);
// What its ranks exchange where no flag says it.
ShardSums shard_sums(const DeviceOptions& options, DeviceKind device);
// What each rank has, but for its number.
ShardSpec shard_spec(const DeviceOptions& options, DeviceKind device);

}  // namespace headrace
