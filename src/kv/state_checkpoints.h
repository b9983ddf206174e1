// Checkpoints of states: of a model whose layers keep a state of fixed size of each sequence
// (a convolution, a recurrence), the copies of states that the prefix tree has. A state is updated
// in place and is there for one length alone, so a prefix is used as far as the deepest checkpoint
// on its path. Ids and counts only; one thread.
//
// Life of a checkpoint: take() gives one to a step, which saves a state in it; when the step was
// applied it is attached to the unit behind which the state stands, or given back. What a unit had
// when it left the tree is free. Where none is free, the one that was used least lately is taken
// again, first of answers if they have more than their share, else of prompts; those of pinned
// units go last. An answer saves every unit and most of what it saves nobody asks for: it takes no
// prompt's once answers have their share, and never a pinned one.
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

  // For a step to save a prompt's state in: the unit that had it has none from now on. nullopt:
  // steps in flight save states in all. O(count)
  std::optional<CheckpointId> take();
  // An answer's, which saved `own` last: it takes that again where no other is free. nullopt: none
  // may go for an answer. O(count)
  std::optional<CheckpointId> take_for_answer(const std::optional<AttachedCheckpoint>& own);
  // The state behind the unit is saved there. nullopt: the unit has one already, of the same bits,
  // and this one is given back; an answer's is a prompt's from now on, if this is. REQUIRES: taken
  std::optional<AttachedCheckpoint> attach(CheckpointId checkpoint, int32_t node);
  // REQUIRES: taken
  void give_back(CheckpointId checkpoint);
  // An answer's is free, if it is still attached as it was then and its unit is not pinned.
  void drop(const AttachedCheckpoint& attached);
  // A sequence began with the unit's.
  void note_use(int32_t node);

  uint64_t evictions() const { return evictions_; }
  // Units and checkpoints agree, and `in_flight` are taken.
  Status check_invariants(int64_t in_flight) const;

 private:
  static constexpr int32_t kShareOfAnswers = 4;  // a quarter of all
  enum class SavedOf : uint8_t { kPrompt, kAnswer };
  struct Entry {
    bool taken = false;
    SavedOf of = SavedOf::kPrompt;
    int32_t node = PrefixTree::kNone;  // to which it is attached; kNone: it is free, or taken
    uint32_t generation = 0;           // of the node when it was
    uint64_t serial = 0;               // AttachedCheckpoint's
    uint64_t last_use = 0;
  };
  bool any_free() const;
  int32_t answers() const;  // checkpoints that are taken for answers, or attached
  int32_t share_of_answers() const { return count() / kShareOfAnswers; }
  // The first to go: a free one, else one of those that `may`. Null: none
  template <class May>
  Entry* first_to_go(const May& may);
  // Where both are pinned or neither, those saved of `first` go first. REQUIRES: both are attached
  bool goes_before(const Entry& a, const Entry& b, SavedOf first) const;
  std::optional<CheckpointId> hand_out(Entry* entry, SavedOf of);  // null: none
  bool is_pinned(const Entry& entry) const { return tree_.at(entry.node).pinned; }
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
