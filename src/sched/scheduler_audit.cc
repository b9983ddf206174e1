#include "sched/scheduler_audit.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

template <class... Args>
Status broken(fmt::format_string<Args...> format, Args&&... args) {
  return internal_error(fmt::format(format, std::forward<Args>(args)...));
}

// The pages of one running sequence in one group: none missing, none too many, full where
// published. Counts holders per page and remembers the request that holds it.
struct PageAudit {
  const BlockPool& pool;
  int32_t reserve_tokens;
  std::vector<int32_t> holders;
  std::vector<const Request*> owner;

  Status add(const Sequence& sequence) {
    const std::span<const KvGroupSpec> groups = sequence.blocks.groups();
    int32_t held = 0;
    for (size_t group = 0; group < groups.size(); ++group) {
      HR_RETURN_IF_ERROR(add_group(sequence, static_cast<int32_t>(group), groups[group], held));
    }
    if (held == sequence.blocks.pages_held()) return ok_status();
    return broken("sequence {} holds {} pages and counts {}", sequence.id.value, held,
                  sequence.blocks.pages_held());
  }

  Status add_group(const Sequence& sequence, int32_t group, const KvGroupSpec& spec,
                   int32_t& held) {
    const std::span<const BlockId> pages = sequence.blocks.blocks(group);
    const int32_t first_held = sequence.blocks.first_held(group);
    const int32_t length = sequence.extent.most;
    // A forked sequence reserves when it first grows.
    const int32_t most = std::max(sequence.extent.reached, reserve_tokens);
    const auto pages_for = [&](int32_t tokens) {
      return static_cast<size_t>((tokens + spec.block_tokens - 1) / spec.block_tokens);
    };
    if (pages.size() < pages_for(length) || pages.size() > pages_for(most)) {
      return broken("sequence {} of {} tokens has {} pages in group {}", sequence.id.value, length,
                    pages.size(), group);
    }
    const int32_t visible =
        spec.kind == KvKind::kSliding ? std::max(0, length - spec.window + 1) : 0;
    if (first_held > visible / spec.block_tokens) {
      return broken("sequence {} let go of a page inside its window", sequence.id.value);
    }
    for (int32_t index = 0; index < static_cast<int32_t>(pages.size()); ++index) {
      const BlockId page = pages[static_cast<size_t>(index)];
      if ((page == kNoBlock) != (index < first_held)) {
        return broken("sequence {}: page {} of group {} is missing or too many", sequence.id.value,
                      index, group);
      }
      if (page == kNoBlock) continue;
      ++held;
      HR_RETURN_IF_ERROR(add_page(sequence, page, index * spec.block_tokens, spec.block_tokens));
    }
    return ok_status();
  }

  Status add_page(const Sequence& sequence, BlockId page, int32_t first, int32_t block_tokens) {
    const auto at = static_cast<size_t>(page.value);
    const bool shareable = pool.state(page) == BlockState::kPublished && owner[at] != nullptr &&
                           PageSupply::key_of(*owner[at]) == PageSupply::key_of(*sequence.request);
    if (holders[at]++ > 0 && owner[at] != sequence.request.get() && !shareable) {
      return broken("page {} is in two requests", page.value);
    }
    owner[at] = sequence.request.get();
    // A hit may end inside a page.
    const bool full =
        first + block_tokens <= sequence.extent.most || first < sequence.prefix_tokens;
    if (pool.state(page) == BlockState::kPublished && !full) {
      return broken("page {} is published before it is full", page.value);
    }
    return ok_status();
  }
};

// The slots of the pages that sequences hold in one group, each page counted once.
struct HeldSlots {
  int64_t held = 0, used = 0, reserved = 0;

  void add(std::span<const BlockId> pages, const KvGroupSpec& group, int32_t length,
           std::vector<bool>& seen) {
    const bool slides = group.kind == KvKind::kSliding;
    const int64_t first = slides ? std::max(0, length - group.window) : 0;
    int64_t begin = 0;
    for (const BlockId page : pages) {
      const int64_t end = begin + group.block_tokens;
      const int64_t tokens = std::min<int64_t>(length, end) - std::max(first, begin);
      const bool ahead = begin >= length;
      begin = end;
      if (page == kNoBlock || seen[static_cast<size_t>(page.value)]) continue;
      seen[static_cast<size_t>(page.value)] = true;
      held += group.block_tokens;
      used += std::max<int64_t>(0, tokens);
      reserved += ahead ? group.block_tokens : 0;
    }
  }

  // `filled` of `page_bytes` bytes are the layers' of the group; 0 bytes: all are.
  void add_to(KvWaste& waste, int64_t filled, int64_t page_bytes) const {
    const auto part = [&](int64_t slots) {
      return page_bytes > 0 ? slots * filled / page_bytes : slots;
    };
    waste.used += part(used);
    waste.reserved += part(reserved);
    waste.internal += part(held - used - reserved);
    waste.padding += held - part(used) - part(reserved) - part(held - used - reserved);
  }
};

// Of a page, what the group fills that fills most; 0: groups do not say.
int64_t largest_block(std::span<const KvGroupSpec> groups) {
  int64_t bytes = 0;
  for (const KvGroupSpec& group : groups) bytes = std::max(bytes, group.block_bytes);
  return bytes;
}

}  // namespace

Status SchedulerAudit::check() const {
  HR_RETURN_IF_ERROR(pool.check_invariants());
  HR_RETURN_IF_ERROR(check_lists());
  HR_RETURN_IF_ERROR(check_states());
  HR_RETURN_IF_ERROR(check_requests());
  HR_RETURN_IF_ERROR(check_slots());
  HR_RETURN_IF_ERROR(check_pages());
  return check_cache();
}

// Every sequence is in exactly the list that its state says.
Status SchedulerAudit::check_lists() const {
  const std::span<Sequence* const> running = table.running().all();
  if (!std::is_sorted(running.begin(), running.end(), ByRank())) {
    return broken("the running sequences are out of order");
  }
  size_t listed = running.size() + table.line().live().size() + table.line().background().size() +
                  table.retiring().size();
  for (const Sequence* sequence : table.running().all()) {
    if (!sequence->running()) return broken("sequence {} does not run", sequence->id.value);
  }
  for (const Sequence* sequence : table.line().live()) {
    const auto* waiting = std::get_if<Waiting>(&sequence->state);
    if (waiting == nullptr || waiting->leader != nullptr || waiting->slot) {
      return broken("sequence {} is queued and not waiting", sequence->id.value);
    }
  }
  for (const Sequence* sequence : table.retiring()) {
    if (!sequence->is<Retiring>() || sequence->entry != nullptr) {
      return broken("sequence {} is not retiring", sequence->id.value);
    }
  }
  for (const auto& [id, sequence] : table.sequences()) {
    for (const Sequence* follower : sequence->followers) {
      const auto* waiting = std::get_if<Waiting>(&follower->state);
      if (waiting == nullptr || waiting->leader != sequence.get() ||
          waiting->slot.has_value() != sequence->running()) {
        return broken("sequence {} does not follow {}", follower->id.value, id.value);
      }
      ++listed;
    }
  }
  if (listed != table.sequences().size()) {
    return broken("{} sequences are in lists, there are {}", listed, table.sequences().size());
  }
  return ok_status();
}

// What a sequence holds is what its state says.
Status SchedulerAudit::check_states() const {
  for (const auto& [id, sequence] : table.sequences()) {
    const bool drained = sequence->last_step <= pool.applied();
    if (sequence->samples_in_flight < 0 || (drained && sequence->samples_in_flight != 0)) {
      return broken("sequence {} has {} samples in flight", id.value, sequence->samples_in_flight);
    }
    const Extent& extent = sequence->extent;
    const bool ordered = extent.settled <= extent.least && extent.least <= extent.most &&
                         extent.most <= extent.reached;
    const bool settles = !drained || !sequence->running() || extent.settled == extent.most;
    if (!ordered || !settles) {
      return broken("sequence {} has settled {} of {} to {} tokens", id.value, extent.settled,
                    extent.least, extent.most);
    }
    const auto* retiring = std::get_if<Retiring>(&sequence->state);
    const bool in_batch = sequence->running() || (retiring != nullptr && retiring->in_batch);
    if (!in_batch && (sequence->blocks.pages_held() != 0 || sequence->extent.most != 0)) {
      return broken("sequence {} does not run and holds {} pages", id.value,
                    sequence->blocks.pages_held());
    }
  }
  return ok_status();
}

Status SchedulerAudit::check_requests() const {
  size_t choices = 0;
  for (const auto& [id, entry] : table.requests()) {
    int32_t unfinished = 0;
    for (const Sequence* sequence : entry.choices) {
      if (sequence == nullptr) continue;
      ++unfinished;
      if (sequence->entry != &entry || sequence->is<Retiring>() || sequence->muted) {
        return broken("choice {} of request {} has ended", sequence->choice, id.value);
      }
    }
    if (unfinished != entry.unfinished || unfinished == 0) {
      return broken("request {} counts {} choices of {}", id.value, entry.unfinished, unfinished);
    }
    choices += static_cast<size_t>(unfinished);
  }
  size_t others = table.retiring().size();
  for (const Sequence* sequence : table.running().all()) others += sequence->muted ? 1 : 0;
  if (choices + others != table.sequences().size()) {
    return broken("{} sequences belong to no request", table.sequences().size() - choices - others);
  }
  return ok_status();
}

// free + running + reserved + leaving = all, each once.
Status SchedulerAudit::check_slots() const {
  std::vector<int32_t> uses(static_cast<size_t>(options.max_num_seqs), 0);
  const auto use = [&](SlotId slot) { ++uses.at(static_cast<size_t>(slot.value)); };
  for (SlotId slot : table.slots().free()) use(slot);
  for (const LeavingSlot& leaving : table.slots().leaving()) use(leaving.slot);
  for (const Sequence* sequence : table.running().all()) {
    use(sequence->slot());
    for (const Sequence* follower : sequence->followers) {
      use(std::get<Waiting>(follower->state).slot.value());
    }
  }
  for (size_t slot = 0; slot < uses.size(); ++slot) {
    if (uses[slot] != 1) return broken("slot {} is in {} lists", slot, uses[slot]);
  }
  return ok_status();
}

// Each page's reference count equals its holders.
Status SchedulerAudit::check_pages() const {
  const auto total = static_cast<size_t>(pool.total());
  PageAudit audit{pool, supply.reserve_tokens(), std::vector<int32_t>(total, 0),
                  std::vector<const Request*>(total, nullptr)};
  for (const Sequence* sequence : table.running().all()) HR_RETURN_IF_ERROR(audit.add(*sequence));
  for (const LeavingSlot& leaving : table.slots().leaving()) {
    if (leaving.row != nullptr) HR_RETURN_IF_ERROR(audit.add(*leaving.row));
  }
  for (size_t page = 0; page < total; ++page) {
    const int32_t references = pool.references(BlockId(static_cast<int32_t>(page)));
    if (references != audit.holders[page]) {
      return broken("page {} counts {} holders and has {}", page, references, audit.holders[page]);
    }
  }
  return ok_status();
}

Status SchedulerAudit::check_cache() const {
  if (cache == nullptr) return ok_status();
  HR_RETURN_IF_ERROR(cache->check_invariants());
  HR_RETURN_IF_ERROR(cache->checkpoints().check_invariants(supply.saves_in_flight()));
  for (const Sequence* sequence : table.running().all()) {
    HR_RETURN_IF_ERROR(cache->check_path(sequence->path, sequence->known_tokens()));
  }
  return ok_status();
}

KvWaste SchedulerAudit::kv_waste() const {
  KvWaste waste;
  std::vector<bool> seen(static_cast<size_t>(pool.total()), false);
  const std::span<Sequence* const> running = table.running().all();
  std::vector<const Sequence*> holders(running.begin(), running.end());
  for (const LeavingSlot& leaving : table.slots().leaving()) {
    if (leaving.row != nullptr) holders.push_back(leaving.row);
  }
  const int64_t page_bytes = largest_block(options.groups);
  for (size_t group = 0; group < options.groups.size(); ++group) {
    const KvGroupSpec& spec = options.groups[group];
    HeldSlots slots;
    for (const Sequence* sequence : holders) {
      slots.add(sequence->blocks.blocks(static_cast<int32_t>(group)), spec, sequence->extent.most,
                seen);
    }
    slots.add_to(waste, spec.block_bytes, page_bytes);
  }
  const int64_t block_tokens = options.groups.front().block_tokens;
  const int64_t free_pages = pool.free_count() + pool.fenced_count();
  if (options.allocation == KvAllocation::kReserveMax) {
    const int64_t reservation =
        peak_pages(options.groups, options.max_model_len, options.max_num_batched_tokens);
    waste.external = free_pages % reservation * block_tokens;
  }
  waste.free = free_pages * block_tokens - waste.external;
  waste.total = waste.held() + waste.external + waste.free;
  return waste;
}

}  // namespace headrace
