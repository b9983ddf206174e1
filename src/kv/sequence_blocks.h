// The pages of one sequence: one block list per KV group. Grows with the sequence, shares pages
// with forks, copies a shared page before it is written, lets go of pages behind a sliding window.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/block_pool.h"
#include "kv/kv_group.h"

namespace headrace {

// Blocks of one KV group of one sequence: table entries [first_index, first_index + blocks.size()).
struct GroupBlocks {
  int32_t group = 0;
  int32_t first_index = 0;
  std::vector<BlockId> blocks;
};

// Copy a whole page before the forward pass (copy-on-write of a shared, partly filled block).
struct BlockCopy {
  int32_t group = 0;
  BlockId from;
  BlockId to;
};

inline constexpr BlockId kNoBlock{-1};

class SequenceBlocks {
 public:
  // `groups` outlives this object.
  explicit SequenceBlocks(std::span<const KvGroupSpec> groups);

  // Pages to allocate before tokens [first, first + count) can be computed: new ones up to
  // max(first + count, reserve_tokens), and one for each shared page that would be written.
  int32_t pages_needed(const BlockPool& pool, int32_t first, int32_t count,
                       int32_t reserve_tokens) const;
  // Takes them. What the device must learn is appended to `added` and `copies`. A page given up for
  // a copy is fenced by `step`, the step that copies it. REQUIRES: pool.free_count() >=
  // pages_needed
  void grow(BlockPool& pool, int32_t first, int32_t count, int32_t reserve_tokens, Ticket step,
            std::vector<GroupBlocks>& added, std::vector<BlockCopy>& copies);
  // Whether tokens [first, first + count) need nothing: no page, no copy, no trim(). What grow()
  // found last, so that a decode asks once a page.
  bool covers(int32_t first, int32_t count) const { return first + count <= covered_until_; }
  // Sliding groups: lets go of the pages that no token from `first` on attends to.
  void trim(BlockPool& pool, int32_t first, Ticket last_use);
  // Begins with pages that were computed before, of tokens [0, length): in each group those that
  // token `length` attends to. The pages have a holder more for this. REQUIRES: holds nothing
  void adopt(std::vector<GroupBlocks> pages, int32_t length);
  // Another sequence with the same first `length` tokens: it shares their pages.
  SequenceBlocks fork(BlockPool& pool, int32_t length);
  // The pages as a newly admitted sequence's table.
  std::vector<GroupBlocks> table() const;
  // The pages of tokens [0, length) are written: publishes those that are full.
  void publish_full(BlockPool& pool, int32_t length_before, int32_t length);
  void release_all(BlockPool& pool, Ticket last_use);

  int32_t pages_held() const { return held_; }
  // [blocks] of a group; kNoBlock where it was trimmed.
  std::span<const BlockId> blocks(int32_t group) const {
    return lists_[static_cast<size_t>(group)].blocks;
  }
  int32_t first_held(int32_t group) const { return lists_[static_cast<size_t>(group)].first_held; }
  std::span<const KvGroupSpec> groups() const { return groups_; }

 private:
  struct List {
    std::vector<BlockId> blocks;
    int32_t first_held = 0;  // entries before it were trimmed
  };
  int32_t find_covered() const;
  bool copies_on_write(const BlockPool& pool, size_t group, int32_t first) const;

  std::span<const KvGroupSpec> groups_;
  std::vector<List> lists_;
  int32_t held_ = 0;
  int32_t covered_until_ = 0;  // see covers(); 0: not known
};

}  // namespace headrace
