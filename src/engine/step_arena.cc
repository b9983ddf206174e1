#include "engine/step_arena.h"

namespace headrace {

Result<StepArena> StepArena::create(Device& device, int64_t bytes, int steps) {
  StepArena arena(device, steps);
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

Status StepArena::reserve(Stream& stream, int64_t bytes) {
  CHECK(places_.used() == 0);
  if (fits(bytes)) return ok_status();
  HR_RETURN_IF_ERROR(stream.synchronize());
  return allocate(bytes);
}

}  // namespace headrace
