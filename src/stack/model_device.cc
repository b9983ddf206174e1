#include "stack/model_device.h"

#include <utility>

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

}  // namespace headrace
