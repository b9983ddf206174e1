#include "kv/sequence_blocks.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace headrace {

SequenceBlocks::SequenceBlocks(std::span<const KvGroupSpec> groups)
    : groups_(groups), lists_(groups.size()) {}

// Whether the page of token `first` is already held (partly filled) and others hold it too.
bool SequenceBlocks::copies_on_write(const BlockPool& pool, size_t group, int32_t first) const {
  const int32_t index = first / groups_[group].block_tokens;
  const List& list = lists_[group];
  return index < static_cast<int32_t>(list.blocks.size()) && index >= list.first_held &&
         pool.is_shared(list.blocks[static_cast<size_t>(index)]);
}

int32_t SequenceBlocks::pages_needed(const BlockPool& pool, int32_t first, int32_t count,
                                     int32_t reserve_tokens) const {
  int32_t needed = 0;
  for (size_t group = 0; group < lists_.size(); ++group) {
    const int32_t end =
        pages_for(std::max(first + count, reserve_tokens), groups_[group].block_tokens);
    const int32_t begin = std::max(static_cast<int32_t>(lists_[group].blocks.size()),
                                   first_visible_page(groups_[group], first));
    needed += std::max(0, end - begin) + (copies_on_write(pool, group, first) ? 1 : 0);
  }
  return needed;
}

void SequenceBlocks::grow(BlockPool& pool, int32_t first, int32_t count, int32_t reserve_tokens,
                          Ticket step, std::vector<GroupBlocks>& added,
                          std::vector<BlockCopy>& copies) {
  for (size_t group = 0; group < lists_.size(); ++group) {
    List& list = lists_[group];
    const auto group_index = static_cast<int32_t>(group);
    const auto take = [&] {
      const std::optional<BlockId> page = pool.allocate();
      CHECK_MSG(page.has_value(), "grow() without enough free pages");
      return *page;
    };
    if (copies_on_write(pool, group, first)) {
      const int32_t index = first / groups_[group].block_tokens;
      BlockId& shared = list.blocks[static_cast<size_t>(index)];
      const BlockId copy = take();
      copies.push_back({group_index, shared, copy});
      added.push_back({group_index, index, {copy}});
      pool.release(shared, step);
      shared = copy;
    }
    const int32_t end =
        pages_for(std::max(first + count, reserve_tokens), groups_[group].block_tokens);
    const auto size = static_cast<int32_t>(list.blocks.size());
    const int32_t begin = std::max(size, first_visible_page(groups_[group], first));
    if (end <= begin) continue;
    GroupBlocks fresh{group_index, begin, {}};
    fresh.blocks.reserve(static_cast<size_t>(end - begin));
    list.blocks.resize(static_cast<size_t>(begin), kNoBlock);
    for (int32_t index = begin; index < end; ++index) fresh.blocks.push_back(take());
    list.blocks.insert(list.blocks.end(), fresh.blocks.begin(), fresh.blocks.end());
    held_ += end - begin;
    added.push_back(std::move(fresh));
  }
  covered_until_ = find_covered();
}

// After grow(): the pages from the token that is written next on are nobody else's, up to the last;
// a window reaches the end of its first page at a known token.
int32_t SequenceBlocks::find_covered() const {
  int32_t until = std::numeric_limits<int32_t>::max();
  for (size_t group = 0; group < lists_.size(); ++group) {
    const KvGroupSpec& spec = groups_[group];
    const List& list = lists_[group];
    until = std::min(until, static_cast<int32_t>(list.blocks.size()) * spec.block_tokens);
    if (spec.kind != KvKind::kSliding) continue;
    until = std::min(until, (list.first_held + 1) * spec.block_tokens + spec.window - 1);
  }
  return until;
}

void SequenceBlocks::trim(BlockPool& pool, int32_t first, Ticket last_use) {
  for (size_t group = 0; group < lists_.size(); ++group) {
    if (groups_[group].kind != KvKind::kSliding) continue;
    List& list = lists_[group];
    const int32_t keep = first_visible_page(groups_[group], first);
    for (; list.first_held < keep; ++list.first_held) {
      if (list.first_held >= static_cast<int32_t>(list.blocks.size())) continue;
      BlockId& page = list.blocks[static_cast<size_t>(list.first_held)];
      if (page == kNoBlock) continue;
      pool.release(page, last_use);
      page = kNoBlock;
      --held_;
    }
  }
}

void SequenceBlocks::adopt(std::vector<GroupBlocks> pages, int32_t length) {
  CHECK(held_ == 0);
  for (size_t group = 0; group < lists_.size(); ++group) {
    lists_[group].first_held = first_visible_page(groups_[group], length);
    lists_[group].blocks.assign(static_cast<size_t>(lists_[group].first_held), kNoBlock);
  }
  for (const GroupBlocks& group : pages) {
    List& list = lists_[static_cast<size_t>(group.group)];
    CHECK(group.first_index == list.first_held);
    list.blocks.insert(list.blocks.end(), group.blocks.begin(), group.blocks.end());
    held_ += static_cast<int32_t>(group.blocks.size());
  }
}

SequenceBlocks SequenceBlocks::fork(BlockPool& pool, int32_t length) {
  covered_until_ = 0;  // the last page is shared from now on
  SequenceBlocks copy(groups_);
  for (size_t group = 0; group < lists_.size(); ++group) {
    const List& from = lists_[group];
    const auto count = std::min(
        from.blocks.size(), static_cast<size_t>(pages_for(length, groups_[group].block_tokens)));
    List& to = copy.lists_[group];
    to.first_held = from.first_held;
    to.blocks.assign(from.blocks.begin(), from.blocks.begin() + static_cast<ptrdiff_t>(count));
    for (BlockId page : to.blocks) {
      if (page == kNoBlock) continue;
      pool.share(page);
      ++copy.held_;
    }
  }
  return copy;
}

std::vector<GroupBlocks> SequenceBlocks::table() const {
  std::vector<GroupBlocks> table;
  for (size_t group = 0; group < lists_.size(); ++group) {
    const List& list = lists_[group];
    if (list.first_held >= static_cast<int32_t>(list.blocks.size())) continue;
    table.push_back({static_cast<int32_t>(group),
                     list.first_held,
                     {list.blocks.begin() + list.first_held, list.blocks.end()}});
  }
  return table;
}

void SequenceBlocks::publish_full(BlockPool& pool, int32_t length_before, int32_t length) {
  for (size_t group = 0; group < lists_.size(); ++group) {
    const List& list = lists_[group];
    const int32_t block_tokens = groups_[group].block_tokens;
    const int32_t full = length / block_tokens;
    for (int32_t index = length_before / block_tokens; index < full; ++index) {
      if (index >= static_cast<int32_t>(list.blocks.size())) break;
      const BlockId page = list.blocks[static_cast<size_t>(index)];
      if (page != kNoBlock && pool.state(page) == BlockState::kFilling) pool.publish(page);
    }
  }
}

void SequenceBlocks::release_all(BlockPool& pool, Ticket last_use) {
  for (List& list : lists_) {
    // Last first: of pages that are kept, the end of a prefix goes before its beginning.
    for (auto page = list.blocks.rbegin(); page != list.blocks.rend(); ++page) {
      if (*page != kNoBlock) pool.release(*page, last_use);
    }
    list = {};
  }
  held_ = 0;
  covered_until_ = 0;
}

}  // namespace headrace
