#include "tensor/device.h"

namespace headrace {

Result<std::unique_ptr<Device>> create_cuda_device(int, int) {
  return unsupported(
      "this build has no CUDA: build with -DHEADRACE_CUDA=ON (./quickstart --cuda), or use "
      "--device cpu");
}

bool built_with_cuda() { return false; }
bool cuda_device_present() { return false; }

}  // namespace headrace
