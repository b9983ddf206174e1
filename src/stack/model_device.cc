#include "stack/model_device.h"

#include <cstdlib>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "ops/ranks/peer_ranks.h"
#include "tensor/gpu_kind.h"

namespace headrace {

namespace {

int gpu_of_rank(const DeviceOptions& options, int32_t rank) {
  const auto named = static_cast<int32_t>(options.gpus.size());
  if (rank < named) return options.gpus[static_cast<size_t>(rank)];
  return options.gpus.back() + rank - named + 1;
}

Result<std::vector<std::unique_ptr<Device>>> create_gpus(const DeviceOptions& options) {
  const int32_t ranks = options.part_count();
  const std::string_view flag =
      options.pipeline_parallel_size > 1 ? "pipeline" : "tensor";  // the one that says how many
  if (ranks > kPeerRanksMax) {
    return invalid_argument(
        fmt::format("--{}-parallel-size {}: a model is split over {} GPUs at most", flag, ranks,
                    kPeerRanksMax),
        fmt::format("{}_parallel_size", flag));
  }
  std::vector<std::unique_ptr<Device>> devices;
  std::set<int> different;
  for (int32_t rank = 0; rank < ranks; ++rank) different.insert(gpu_of_rank(options, rank));
  // A kernel that is loaded when it is first launched waits for its GPU, and so for what waits
  // there for the other rank. CUDA reads this when it starts.
  if (std::ssize(different) < ranks) ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    auto device =
        create_cuda_device(gpu_of_rank(options, rank), options.threads, options.batch_invariant);
    if (!device.ok()) {
      return device.status().with_context(
          fmt::format("--{}-parallel-size {}, GPU {} of the model", flag, ranks, rank));
    }
    devices.push_back(std::move(device).value());
  }
  return devices;
}

// Before CUDA starts. A kernel that is loaded when it is first launched may wait for the GPU, on
// which a kernel may wait for another rank, whose launch waits for the driver.
void load_kernels_at_start(const DeviceOptions& options) {
  if (options.tensor_parallel_size > 1) {
    ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  }
}

// Whether `--device auto` goes on with the CPU where no GPU came, which a line of the log says.
bool gives_way_to_cpu(const DeviceOptions& options, const Status& gpu) {
  if (options.choice == DeviceChoice::kGpu || !auto_takes_cpu(gpu)) return false;
  log_warning("{}: --device auto takes the CPU", gpu.message());
  return true;
}

}  // namespace

bool takes_gpu(const DeviceOptions& options) {
  load_kernels_at_start(options);
  if (options.choice == DeviceChoice::kAuto) return built_with_cuda() && cuda_device_present();
  return options.choice == DeviceChoice::kGpu;
}

Result<std::unique_ptr<Device>> create_device(const DeviceOptions& options) {
  if (takes_gpu(options)) {
    auto gpu =
        create_cuda_device(gpu_of_rank(options, 0), options.threads, options.batch_invariant);
    if (gpu.ok() || !gives_way_to_cpu(options, gpu.status())) return gpu;
  }
  return create_cpu_device(options.threads, CpuFeatures::detect(), options.cpu_bind,
                           options.batch_invariant);
}

Result<std::vector<std::unique_ptr<Device>>> create_devices(const DeviceOptions& options) {
  const int32_t ranks = options.part_count();
  if (std::ssize(options.gpus) > ranks) {
    return invalid_argument(
        fmt::format(
            "--device names {} GPUs, and the model is split over {} (--tensor-parallel-size, "
            "--pipeline-parallel-size): each part has one",
            options.gpus.size(), ranks),
        "device");
  }
  std::vector<std::unique_ptr<Device>> devices;
  if (ranks == 1) {
    HR_ASSIGN_OR_RETURN(auto device, create_device(options));
    devices.push_back(std::move(device));
    return devices;
  }
  if (takes_gpu(options)) {
    auto gpus = create_gpus(options);
    if (gpus.ok() || !gives_way_to_cpu(options, gpus.status())) return gpus;
  }
  const ThreadPlacement threads =
      place_threads(CpuTopology::read(), options.threads, options.cpu_bind);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    devices.push_back(
        create_cpu_device(placement_of_rank(threads, rank, ranks), options.batch_invariant));
  }
  return devices;
}

ShardSums shard_sums(const DeviceOptions& options, DeviceKind device) {
  return options.tensor_parallel_sums.value_or(device == DeviceKind::kCpu ? ShardSums::kGather
                                                                          : ShardSums::kReduce);
}

ShardSpec shard_spec(const DeviceOptions& options, DeviceKind device) {
  return {.ranks = options.tensor_parallel_size,
          .sums = shard_sums(options, device),
          .whole_experts = options.enable_expert_parallel};
}

}  // namespace headrace
