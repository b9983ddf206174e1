// Checkpoints of states: of a model whose layers keep a state of fixed size of each sequence
// (a convolution, a recurrence), the copies of states that the prefix tree has. A state is updated
// in place and is there for one length alone, so a prefix is used as far as the deepest checkpoint
// on its path. Ids and counts only; one thread.
//
// Life of a checkpoint: take() gives one to a step, which saves a state in it; when the step was
// applied it is attached to the unit behind which the state stands, or given back. It is taken
// again when all others were used later; those of pinned units go last. What a unit had when it
// left the tree is free.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/prefix_tree.h"

namespace headrace {

// A checkpoint as it was attached once: attached later, there or elsewhere, it is another.
struct AttachedCheckpoint {
  CheckpointId checkpoint;
  uint64_t serial = 0;  // of all that were attached
};

class StateCheckpoints {
 public:
  // `tree` outlives this object. `count` 0: the model keeps no states, or none are saved.
  StateCheckpoints(const PrefixTree& tree, int32_t count);

  int32_t count() const { return static_cast<int32_t>(entries_.size()); }
  int32_t attached_count() const;  // O(count)
  // The unit's; nullopt: it has none.
  std::optional<CheckpointId> of(int32_t node) const;

  // For a step to save a state in: the unit that had it has none from now on. nullopt: steps in
  // flight save states in all. O(count)
  std::optional<CheckpointId> take();
  // The state behind the unit is saved there. nullopt: the unit has one already, of the same bits,
  // and this one is given back. REQUIRES: taken
  std::optional<AttachedCheckpoint> attach(CheckpointId checkpoint, int32_t node);
  // REQUIRES: taken
  void give_back(CheckpointId checkpoint);
  // It is free, if it is still attached as it was then and its unit is not pinned.
  void drop(const AttachedCheckpoint& attached);
  // A sequence began with the unit's.
  void note_use(int32_t node);

  uint64_t evictions() const { return evictions_; }
  // Units and checkpoints agree, and `in_flight` are taken.
  Status check_invariants(int64_t in_flight) const;

 private:
  struct Entry {
    bool taken = false;
    int32_t node = PrefixTree::kNone;  // to which it is attached; kNone: it is free, or taken
    uint32_t generation = 0;           // of the node when it was
    uint64_t serial = 0;               // AttachedCheckpoint's
    uint64_t last_use = 0;
  };
  // REQUIRES: both are attached
  bool goes_before(const Entry& a, const Entry& b) const;
  Entry& at(CheckpointId id) { return entries_[static_cast<size_t>(id.value)]; }
  bool is_attached(const Entry& entry) const {
    return entry.node != PrefixTree::kNone && tree_.is_current(entry.node, entry.generation);
  }

  const PrefixTree& tree_;
  std::vector<Entry> entries_;    // [checkpoints]
  std::vector<int32_t> of_node_;  // [nodes]: the last that was attached; -1: none
  uint64_t uses_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace headrace
