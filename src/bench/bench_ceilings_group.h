// What all GPUs of this machine can do together: the sum over them that tensor parallelism waits
// for twice a layer.
#pragma once

#include <functional>

#include "base/status.h"
#include "bench/bench_ceilings_device.h"
#include "tensor/device.h"

namespace headrace {

// Rows "all_reduce": microseconds of one BF16 sum over `first` and every GPU after it, by bytes a
// rank, started from a recording as a step would. No row where `first` is the only one.
Status measure_group_ceilings(Device& first, int repetitions,
                              const std::function<void(const CeilingRow&)>& print);

}  // namespace headrace
