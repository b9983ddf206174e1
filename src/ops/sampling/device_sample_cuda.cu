// device_sample on CUDA: the table.
#include <array>

#include "ops/sampling/device_sample.cuh"

namespace headrace {
namespace {

// A row on eight multiprocessors is up to three times as fast, as long as there are enough of them
// (measured on an H200: at 64 rows the others are ahead).
constexpr int64_t kClusterRowsMax = 16;

bool few_rows(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  return sample_cluster_fits(traits, args) && args.logits.rows() <= kClusterRowsMax;
}
// Rows with a multiprocessor each.
bool a_multiprocessor_each(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  return sample_block_fits(traits, args) && args.logits.rows() <= traits.sm_count;
}

constexpr std::array kKernels = {
    Kernel<DeviceSampleArgs>{"device_sample/cuda/cluster", few_rows, run_sample_cluster},
    Kernel<DeviceSampleArgs>{"device_sample/cuda/block_wide", a_multiprocessor_each,
                             run_sample_block_wide},
    Kernel<DeviceSampleArgs>{"device_sample/cuda/block", sample_block_fits, run_sample_block},
};

}  // namespace

KernelTable<DeviceSampleArgs> device_sample_cuda_kernels() { return kKernels; }

}  // namespace headrace
