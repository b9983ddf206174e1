#include "kv/state_checkpoints.h"

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
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.taken) continue;
    const bool free = !is_attached(entry);
    if (free || oldest == nullptr || goes_before(entry, *oldest)) oldest = &entry;
    if (free) break;
  }
  if (oldest == nullptr) return std::nullopt;
  if (is_attached(*oldest)) ++evictions_;
  *oldest = {.taken = true};
  return CheckpointId(static_cast<int32_t>(oldest - entries_.data()));
}

bool StateCheckpoints::goes_before(const Entry& a, const Entry& b) const {
  const bool a_pinned = tree_.at(a.node).pinned, b_pinned = tree_.at(b.node).pinned;
  return a_pinned != b_pinned ? b_pinned : a.last_use < b.last_use;
}

std::optional<AttachedCheckpoint> StateCheckpoints::attach(CheckpointId checkpoint, int32_t node) {
  CHECK(at(checkpoint).taken);
  if (of(node)) {
    give_back(checkpoint);
    return std::nullopt;
  }
  const uint64_t now = ++uses_;
  at(checkpoint) = {
      .node = node, .generation = tree_.at(node).generation, .serial = now, .last_use = now};
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
  if (same && !tree_.at(entry.node).pinned) entry = {};
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
