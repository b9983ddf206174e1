#include "kv/block_pool.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

BlockPool::BlockPool(int32_t block_count) {
  CHECK(block_count >= 0);
  blocks_.resize(static_cast<size_t>(block_count));
  free_.reserve(blocks_.size());
  for (int32_t id = block_count - 1; id >= 0; --id) free_.push_back(BlockId(id));
}

std::optional<BlockId> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId block = free_.back();
  free_.pop_back();
  at(block) = {.references = 1, .state = BlockState::kFilling, .fence = Ticket()};
  return block;
}

void BlockPool::share(BlockId block) {
  CHECK_MSG(at(block).references > 0, "a page without a holder cannot be shared");
  ++at(block).references;
}

void BlockPool::release(BlockId block, Ticket fence) {
  Block& entry = at(block);
  CHECK_MSG(entry.references > 0, "a page was released more often than held");
  entry.fence = std::max(entry.fence, fence);
  if (--entry.references > 0) return;
  const bool busy = entry.fence > applied_;
  entry.state = busy ? BlockState::kFenced : BlockState::kFree;
  (busy ? fenced_ : free_).push_back(block);
}

void BlockPool::publish(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.references > 0 && entry.state == BlockState::kFilling);
  entry.state = BlockState::kPublished;
}

void BlockPool::begin_transfer(BlockId block) {
  CHECK(at(block).state == BlockState::kPublished);
  at(block).state = BlockState::kInTransfer;
  share(block);
}

void BlockPool::end_transfer(BlockId block, Ticket fence) {
  CHECK(at(block).state == BlockState::kInTransfer);
  at(block).state = BlockState::kPublished;
  release(block, fence);
}

void BlockPool::advance(Ticket applied) {
  CHECK(applied >= applied_);
  applied_ = applied;
  std::erase_if(fenced_, [&](BlockId block) {
    if (at(block).fence > applied_) return false;
    at(block).state = BlockState::kFree;
    free_.push_back(block);
    return true;
  });
}

Status BlockPool::check_invariants() const {
  std::vector<int8_t> seen(blocks_.size(), 0);
  const auto walk = [&](const std::vector<BlockId>& list, BlockState state) -> Status {
    for (BlockId block : list) {
      const Block& entry = at(block);
      if (entry.state != state || entry.references != 0) {
        return internal_error(fmt::format(
            "page {} is in the list of state {} with state {} and {} holders", block.value,
            static_cast<int>(state), static_cast<int>(entry.state), entry.references));
      }
      if (seen[static_cast<size_t>(block.value)]++ != 0) {
        return internal_error(fmt::format("page {} is listed twice", block.value));
      }
      if (state == BlockState::kFenced && entry.fence <= applied_) {
        return internal_error(
            fmt::format("page {} is fenced by a step that was applied", block.value));
      }
    }
    return ok_status();
  };
  HR_RETURN_IF_ERROR(walk(free_, BlockState::kFree));
  HR_RETURN_IF_ERROR(walk(fenced_, BlockState::kFenced));
  for (size_t id = 0; id < blocks_.size(); ++id) {
    const bool listed = seen[id] != 0;
    if (listed == (blocks_[id].references > 0)) {
      return internal_error(fmt::format("page {} has {} holders and {} in a free list", id,
                                        blocks_[id].references, listed ? "is" : "is not"));
    }
  }
  return ok_status();
}

}  // namespace headrace
