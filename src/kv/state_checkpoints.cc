#include "kv/state_checkpoints.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

StateCheckpoints::StateCheckpoints(const PrefixTree& tree, int32_t count)
    : tree_(tree),
      entries_(static_cast<size_t>(count)),
      of_node_(count > 0 ? static_cast<size_t>(tree.node_max()) : 0, -1) {}

int32_t StateCheckpoints::attached_count() const {
  int32_t count = 0;
  for (const Entry& entry : entries_) count += is_attached(entry) ? 1 : 0;
  return count;
}

std::optional<CheckpointId> StateCheckpoints::of(int32_t node) const {
  if (of_node_.empty()) return std::nullopt;
  const int32_t index = of_node_[static_cast<size_t>(node)];
  if (index < 0) return std::nullopt;
  const Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.node != node || !is_attached(entry)) return std::nullopt;
  return CheckpointId(index);
}

std::optional<CheckpointId> StateCheckpoints::take() {
  return hand_out(first_to_go([](const Entry&) { return true; }), SavedOf::kPrompt);
}

std::optional<CheckpointId> StateCheckpoints::take_for_answer(
    const std::optional<AttachedCheckpoint>& own) {
  if (own && !any_free()) drop(*own);
  const bool share_left = answers() < share_of_answers();
  return hand_out(first_to_go([&](const Entry& entry) {
                    return !is_pinned(entry) && (share_left || entry.of == SavedOf::kAnswer);
                  }),
                  SavedOf::kAnswer);
}

std::optional<CheckpointId> StateCheckpoints::hand_out(Entry* entry, SavedOf of) {
  if (entry == nullptr) return std::nullopt;
  if (is_attached(*entry)) ++evictions_;
  *entry = {.taken = true, .of = of};
  return CheckpointId(static_cast<int32_t>(entry - entries_.data()));
}

bool StateCheckpoints::any_free() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return !entry.taken && !is_attached(entry); });
}

int32_t StateCheckpoints::answers() const {
  return static_cast<int32_t>(
      std::count_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.of == SavedOf::kAnswer && (entry.taken || is_attached(entry));
      }));
}

template <class May>
StateCheckpoints::Entry* StateCheckpoints::first_to_go(const May& may) {
  const SavedOf first = answers() > share_of_answers() ? SavedOf::kAnswer : SavedOf::kPrompt;
  Entry* chosen = nullptr;
  for (Entry& entry : entries_) {
    if (entry.taken) continue;
    if (!is_attached(entry)) return &entry;
    if (!may(entry)) continue;
    if (chosen == nullptr || goes_before(entry, *chosen, first)) chosen = &entry;
  }
  return chosen;
}

bool StateCheckpoints::goes_before(const Entry& a, const Entry& b, SavedOf first) const {
  if (is_pinned(a) != is_pinned(b)) return is_pinned(b);
  if (a.of != b.of) return a.of == first;
  return a.last_use < b.last_use;
}

std::optional<AttachedCheckpoint> StateCheckpoints::attach(CheckpointId checkpoint, int32_t node) {
  CHECK(at(checkpoint).taken);
  const SavedOf saved_of = at(checkpoint).of;
  const uint64_t now = ++uses_;
  if (const auto there = of(node)) {
    give_back(checkpoint);
    if (saved_of == SavedOf::kPrompt) {
      at(*there).of = SavedOf::kPrompt;
      at(*there).last_use = now;
    }
    return std::nullopt;
  }
  at(checkpoint) = {.of = saved_of,
                    .node = node,
                    .generation = tree_.at(node).generation,
                    .serial = now,
                    .last_use = now};
  of_node_[static_cast<size_t>(node)] = checkpoint.value;
  return AttachedCheckpoint{checkpoint, now};
}

void StateCheckpoints::give_back(CheckpointId checkpoint) {
  CHECK(at(checkpoint).taken);
  at(checkpoint) = {};
}

void StateCheckpoints::drop(const AttachedCheckpoint& attached) {
  Entry& entry = at(attached.checkpoint);
  const bool same = is_attached(entry) && entry.serial == attached.serial;
  if (same && entry.of == SavedOf::kAnswer && !is_pinned(entry)) entry = {};
}

void StateCheckpoints::note_use(int32_t node) {
  if (const auto checkpoint = of(node)) at(*checkpoint).last_use = ++uses_;
}

Status StateCheckpoints::check_invariants(int64_t in_flight) const {
  int64_t taken = 0;
  for (int32_t i = 0; i < count(); ++i) {
    const Entry& entry = entries_[static_cast<size_t>(i)];
    taken += entry.taken ? 1 : 0;
    if (entry.taken && entry.node != PrefixTree::kNone) {
      return internal_error(fmt::format("checkpoint {} is taken and attached", i));
    }
    if (is_attached(entry) && of(entry.node) != CheckpointId(i)) {
      return internal_error(
          fmt::format("checkpoint {} is attached to node {}, which has another", i, entry.node));
    }
  }
  if (taken == in_flight) return ok_status();
  return internal_error(
      fmt::format("{} checkpoints are taken, steps in flight save {}", taken, in_flight));
}

}  // namespace headrace
