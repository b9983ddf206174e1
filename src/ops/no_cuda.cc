// The CUDA tables of a build without CUDA: empty.
#include "ops/ceilings/ceiling.h"
#include "ops/op_list.h"
#include "ops/ranks/peer_ranks.h"

namespace headrace {

#define HR_EMPTY_TABLE(op, Args) \
  KernelTable<Args> op##_cuda_kernels() { return {}; }
HR_OPS_ON_CUDA(HR_EMPTY_TABLE)
#undef HR_EMPTY_TABLE

int64_t linear_cuda_workspace_bytes() { return 0; }
void read_all_cuda(Stream&, int32_t, std::span<const std::byte>) {
  CHECK_MSG(false, "this build has no CUDA device");
}
Result<std::unique_ptr<PeerRanks>> create_cuda_peer_ranks(std::span<Device* const>) {
  CHECK_MSG(false, "this build has no CUDA device");
}

}  // namespace headrace
