#include "engine/step_arena.h"

namespace headrace {

Result<StepArena> StepArena::create(Device& device, int64_t bytes) {
  StepArena arena(device);
  HR_RETURN_IF_ERROR(arena.allocate(bytes));
  return arena;
}

Status StepArena::allocate(int64_t bytes) {
  for (Buffer& host : host_) {
    HR_ASSIGN_OR_RETURN(host, allocator_->allocate_host(bytes));
  }
  HR_ASSIGN_OR_RETURN(device_, allocator_->allocate(bytes));
  return ok_status();
}

Result<bool> StepArena::reserve(Stream& stream, int64_t bytes) {
  CHECK(used_ == 0);
  if (bytes <= device_.size()) return false;
  HR_RETURN_IF_ERROR(stream.synchronize());
  HR_RETURN_IF_ERROR(allocate(2 * bytes));
  return true;
}

}  // namespace headrace
