#include "tensor/device.h"
#include "tensor/nccl_library.h"
#include "tensor/peer_access.h"
#include "tensor/physical_pages.h"

namespace headrace {

Result<std::unique_ptr<Device>> create_cuda_device(int, int, bool) {
  return unsupported(
      "this build has no CUDA: build with -DHEADRACE_CUDA=ON (./quickstart --cuda), or use "
      "--device cpu");
}

Result<int64_t> cuda_page_granularity(Device&) { return unsupported("this build has no CUDA"); }
Result<std::unique_ptr<PhysicalPages>> create_cuda_pages(Device&, int64_t, int32_t) {
  return unsupported("this build has no CUDA");
}

Result<const NcclLibrary*> NcclLibrary::open() { return unsupported("this build has no CUDA"); }

Result<bool> reach_peer(int, int) { return unsupported("this build has no CUDA"); }

bool built_with_cuda() { return false; }
bool cuda_device_present() { return false; }

}  // namespace headrace
