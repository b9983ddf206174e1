// The pool of KV pages as ids and counts: reference counts, states and fences. The memory behind a
// page is someone else's. PagedAttention (Kwon et al., SOSP 2023), section 4.
//
// Every operation is O(1) (advance() is O(pages it frees)). One thread.
//
// Fence: a page whose last holder lets go while a submitted step may still read or write it becomes
// free only when that step has been applied. Reuse before that is how one request reads another's
// keys.
//
// Kept: a published page that a PageKeeper (the prefix cache) wants to find again. When its last
// holder lets go it is idle instead of free: it can be shared again, and allocate() takes it when
// nothing else is left. So whatever is kept, free_count() pages can be allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

enum class BlockState : uint8_t {
  kFree,        // no holder; nothing in flight refers to it
  kFilling,     // one writer; its tokens are not all computed
  kPublished,   // full and written by an applied step: may be found and shared by others
  kInTransfer,  // being copied to or from another place; the transfer is one of its holders
  kFenced,      // no holder, but a step in flight may still touch it
  kIdle,        // no holder, kept: may be shared again or taken
};

// Keeps published pages beyond their holders. Called by the pool; may call keep() and forget().
class PageKeeper {
 public:
  virtual ~PageKeeper() = default;
  virtual void page_idle(BlockId block) = 0;  // a kept page has become idle
  virtual void page_held(BlockId block) = 0;  // an idle page has a holder again
  // The pool needs pages: forget() at least one that is idle. REQUIRES: idle_count() > 0
  virtual void evict() = 0;
};

class BlockPool {
 public:
  explicit BlockPool(int32_t block_count);
  void set_keeper(PageKeeper* keeper) { keeper_ = keeper; }  // outlives the pool's use; null: none

  // A page with one holder, kFilling. Empty when none is free: nothing has changed.
  std::optional<BlockId> allocate();
  // One more holder. REQUIRES: held or kept
  void share(BlockId block);
  // One holder less. `fence` is the last submitted step in which this holder touched the page; when
  // it was the last holder, the page is free once every holder's fence has been applied.
  void release(BlockId block, Ticket fence);
  // Full, and the step that wrote its last token was applied. REQUIRES: held, kFilling
  void publish(BlockId block);
  // A transfer is a holder of its own: the page outlives its sequence until end_transfer().
  // REQUIRES: kPublished
  void begin_transfer(BlockId block);
  void end_transfer(BlockId block, Ticket fence);

  // From now on the page outlives its holders. REQUIRES: kPublished, not kept
  void keep(BlockId block);
  // No longer: an idle page is free at once, a held one with its last holder. REQUIRES: kept
  void forget(BlockId block);

  // Steps up to `applied` are done: frees the pages fenced by them.
  void advance(Ticket applied);

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  // What can be allocated now: free and idle pages.
  int32_t free_count() const { return static_cast<int32_t>(free_.size()) + idle_count_; }
  int32_t idle_count() const { return idle_count_; }
  int32_t unused_count() const { return static_cast<int32_t>(free_.size()); }  // kept by nobody
  int32_t fenced_count() const { return static_cast<int32_t>(fenced_.size()); }
  int32_t held_count() const { return total() - free_count() - fenced_count(); }
  Ticket applied() const { return applied_; }

  int32_t references(BlockId block) const { return at(block).references; }
  bool is_kept(BlockId block) const { return at(block).kept; }
  // Whether a holder must copy it before it writes: others hold it, or may find it.
  bool is_shared(BlockId block) const { return at(block).references > 1 || at(block).kept; }
  BlockState state(BlockId block) const { return at(block).state; }
  void prefetch(BlockId block) const { __builtin_prefetch(&at(block)); }

  // free + idle + fenced + held = total; every page is in exactly the list that its state says.
  Status check_invariants() const;

 private:
  struct Block {
    int32_t references = 0;
    BlockState state = BlockState::kFree;
    bool kept = false;
    Ticket fence;  // the highest of its holders'
  };
  void settle(BlockId block);  // no holder, no fence: free or idle
  Block& at(BlockId block) { return blocks_.at(static_cast<size_t>(block.value)); }
  const Block& at(BlockId block) const { return blocks_.at(static_cast<size_t>(block.value)); }

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;    // a stack: the page freed last is used first, it may be in cache
  std::vector<BlockId> fenced_;  // few: what the steps in flight let go
  int32_t idle_count_ = 0;
  PageKeeper* keeper_ = nullptr;
  Ticket applied_;
};

}  // namespace headrace
