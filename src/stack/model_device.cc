#include "stack/model_device.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "tensor/gpu_kind.h"

namespace headrace {

bool takes_gpu(const DeviceOptions& options) {
  if (options.choice == DeviceChoice::kAuto) return built_with_cuda() && cuda_device_present();
  return options.choice == DeviceChoice::kGpu;
}

Result<std::unique_ptr<Device>> create_device(const DeviceOptions& options) {
  if (takes_gpu(options)) {
    auto gpu = create_cuda_device(options.gpu_index, options.threads, options.batch_invariant);
    if (options.choice == DeviceChoice::kGpu || !auto_takes_cpu(gpu.status())) return gpu;
    log_warning("{}: --device auto takes the CPU", gpu.status().message());
  }
  return create_cpu_device(options.threads, CpuFeatures::detect(), options.cpu_bind,
                           options.batch_invariant);
}

Result<std::vector<std::unique_ptr<Device>>> create_devices(const DeviceOptions& options) {
  const int32_t ranks = options.tensor_parallel_size;
  std::vector<std::unique_ptr<Device>> devices;
  if (ranks == 1) {
    HR_ASSIGN_OR_RETURN(auto device, create_device(options));
    devices.push_back(std::move(device));
    return devices;
  }
  if (takes_gpu(options)) {
    return unsupported(
        fmt::format("--tensor-parallel-size {}: a model is split over ranks of a CPU only: use "
                    "--device cpu, or 1",
                    ranks),
        "tensor_parallel_size");
  }
  const ThreadPlacement threads =
      place_threads(CpuTopology::read(), options.threads, options.cpu_bind);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    devices.push_back(
        create_cpu_device(placement_of_rank(threads, rank, ranks), options.batch_invariant));
  }
  return devices;
}

}  // namespace headrace
