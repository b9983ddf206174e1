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
  if (free_.empty() && idle_count_ > 0) keeper_->evict();
  if (free_.empty()) return std::nullopt;
  const BlockId block = free_.back();
  free_.pop_back();
  at(block) = {.references = 1, .state = BlockState::kFilling, .kept = false, .fence = Ticket()};
  return block;
}

void BlockPool::share(BlockId block) {
  Block& entry = at(block);
  CHECK_MSG(entry.references > 0 || entry.kept, "a page without a holder cannot be shared");
  if (++entry.references > 1) return;
  const bool idle = entry.state == BlockState::kIdle;
  entry.state = BlockState::kPublished;
  if (idle) {
    --idle_count_;
    keeper_->page_held(block);
  } else {
    std::erase(fenced_, block);  // its fence stays: it holds for the next release too
  }
}

void BlockPool::release(BlockId block, Ticket fence) {
  Block& entry = at(block);
  CHECK_MSG(entry.references > 0, "a page was released more often than held");
  entry.fence = std::max(entry.fence, fence);
  if (--entry.references > 0) return;
  if (entry.fence <= applied_) return settle(block);
  entry.state = BlockState::kFenced;
  fenced_.push_back(block);
}

void BlockPool::settle(BlockId block) {
  Block& entry = at(block);
  if (!entry.kept) {
    entry.state = BlockState::kFree;
    free_.push_back(block);
    return;
  }
  entry.state = BlockState::kIdle;
  ++idle_count_;
  keeper_->page_idle(block);
}

void BlockPool::keep(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.state == BlockState::kPublished && !entry.kept && keeper_ != nullptr);
  entry.kept = true;
}

void BlockPool::forget(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.kept);
  entry.kept = false;
  if (entry.state != BlockState::kIdle) return;
  --idle_count_;
  settle(block);
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
    settle(block);
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
  int32_t idle = 0;
  for (size_t id = 0; id < blocks_.size(); ++id) {
    const Block& entry = blocks_[id];
    const bool listed = seen[id] != 0;
    idle += entry.state == BlockState::kIdle ? 1 : 0;
    if (entry.state == BlockState::kIdle && (!entry.kept || entry.fence > applied_)) {
      return internal_error(fmt::format("page {} is idle and not kept, or fenced", id));
    }
    if ((listed || entry.state == BlockState::kIdle) == (entry.references > 0)) {
      return internal_error(fmt::format("page {} has {} holders and {} in a free list", id,
                                        entry.references, listed ? "is" : "is not"));
    }
  }
  if (idle != idle_count_) {
    return internal_error(fmt::format("{} pages are idle, {} are counted", idle, idle_count_));
  }
  return ok_status();
}

}  // namespace headrace
