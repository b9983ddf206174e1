// A sequence is one choice of a request on its way: its output so far, its pages, and the state it
// is in. States are types: what only makes sense in one state lives in that state.
//
//   Waiting -> Prefilling -> Decoding -> Retiring
//      ^________preempted______|  (also from Prefilling; what it has generated is recomputed)
//
// With n > 1 one choice leads: it computes the prompt while the others (its followers) wait with
// their slots reserved; when its last prompt token is computed they start Decoding on its pages.
//
// The sequences of a search (Request::beams) are its beams. They run together or wait together: all
// follow the first while they wait, and where one gives way all do. The prompt's result starts the
// followers, each result moves the beams on: a beam that has ended takes over the pages of another.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "kv/prefix_cache.h"
#include "kv/sequence_blocks.h"
#include "sched/beam_search.h"
#include "sched/extent.h"
#include "sched/request.h"

namespace headrace {

struct Sequence;

// A sequence's place in line. The smallest goes first; the greatest is "the youngest" and is
// preempted first.
struct Rank {
  bool background = false;  // behind all that is live
  int32_t level = 0;        // the policy's classes, or kPromotedLevel
  double key = 0;           // its order inside a class
  uint64_t arrival = 0;
  int32_t choice = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};
// The level before all classes, of a sequence that has waited too long.
inline constexpr int32_t kPromotedLevel = std::numeric_limits<int32_t>::min();

// A search, and the sequences of its beams: best first, one to begin with.
struct RunningSearch {
  BeamSearch search;
  std::vector<Sequence*> beams;
};

// A request that has not ended, with its choices that have not.
struct RequestEntry {
  std::shared_ptr<const Request> request;
  std::vector<Sequence*> choices;         // [Request::sequences()]; null = ended
  std::unique_ptr<RunningSearch> search;  // null: its answers are sampled
  int32_t unfinished = 0;
  // Prompt log-probabilities up to this prompt index were emitted (index 0 has none).
  int32_t prompt_scored = 1;
  int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache at the first admission
};

struct Waiting {
  Sequence* leader = nullptr;    // a follower; null: it queues for itself
  std::optional<SlotId> slot{};  // a follower's reserved slot, once the leader runs
};
struct Prefilling {
  SlotId slot;
  int32_t target = 0;  // tokens [0, target) are computed here; the last one samples
};
struct Decoding {
  SlotId slot;
  // Of a beam: what may follow it, from its last row until all beams have theirs; the pages that it
  // went on with, of which its next work tells the device, and of its tokens; whether nothing has
  // told the device of the sequence yet.
  std::optional<TokenLogprobs> candidates{};
  std::optional<std::vector<GroupBlocks>> moved_to{};
  bool untold = false;
};
struct Retiring {         // ended, but a step in flight still refers to it
  bool in_batch = false;  // or its row is computed until its static batch has ended
};

// What is known of a sequence's proposals (proposer.h).
struct ProposalRecord {
  static constexpr double kUnknown = 0.5;
  double acceptance = kUnknown;  // the share that was accepted lately
  int32_t in_vain = 0;           // steps, one after the other, for which it waited and got none
  int32_t pause = 0;             // tokens for which it gets none
  bool awaited = false;          // it is planned behind its result, to get some
  // Of a draft model (model_drafts.h): whether it drafts, how far the draft has come at least, the
  // steps left of a trial, and how long it paused last.
  bool begun = false;
  double acceptance_weight = 0;  // proposals that `acceptance` is the mean of
  int32_t drafted_to = 0;
  int32_t trial_steps = 0;
  int32_t next_pause = 0;
};

// What a DraftSource remembers of a sequence.
struct DraftMemory {
  virtual ~DraftMemory() = default;
};

struct Sequence {
  SequenceId id;
  RequestEntry* entry = nullptr;  // null when Retiring
  std::shared_ptr<const Request> request;
  int32_t choice = 0;
  Rank rank;
  uint64_t waits_since = 0;         // the step of its last work; before any: in which it arrived
  uint64_t awaits_pages_since = 0;  // the step from which it waits for fenced pages; 0: it does not
  double arrival_seconds = 0;       // by the scheduler's clock, as the next
  double first_token_seconds = 0;

  std::vector<TokenId> output;       // known here; more may be in flight
  std::vector<Sequence*> followers;  // of a leader, until they start
  bool muted = false;  // a leader whose own choice was cancelled: it samples only for others

  SequenceBlocks blocks;
  PrefixPath path;            // how far its tokens are in the prefix cache
  int32_t prefix_tokens = 0;  // tokens [0, prefix_tokens) were found there when it was admitted
  // Of models that keep states: the checkpoint that it began with; how far keys and values of
  // others reached beyond it, where a state is saved on the way; the last that it attached itself
  // behind a unit of its answer.
  std::optional<CheckpointId> checkpoint{};
  int32_t branch_tokens = 0;
  std::optional<AttachedCheckpoint> answer_checkpoint{};
  Extent extent;         // what of it is computed or in a submitted step
  int32_t reserved = 0;  // its policy's: pages for so many tokens are its own
  int32_t samples_in_flight = 0;
  int32_t preemptions = 0;    // for want of pages
  int32_t yields = 0;         // preempted by its policy
  bool displaced = false;     // its policy preempted it last, and it has not joined again
  int32_t pinned_tokens = 0;  // while preempted: tokens whose pages in the cache are pinned
  int32_t computed_max = 0;   // the most tokens ever computed: up to it work is recomputation
  Ticket last_step;           // the last step that has work for it
  ProposalRecord proposals;
  std::unique_ptr<DraftMemory> draft_memory{};

  std::variant<Waiting, Prefilling, Decoding, Retiring> state;

  template <class State>
  bool is() const {
    return std::holds_alternative<State>(state);
  }
  bool running() const { return is<Prefilling>() || is<Decoding>(); }
  Decoding& decoding() { return std::get<Decoding>(state); }  // REQUIRES: is<Decoding>()
  SlotId slot() const {                                       // REQUIRES: running()
    const auto* prefilling = std::get_if<Prefilling>(&state);
    return prefilling != nullptr ? prefilling->slot : std::get<Decoding>(state).slot;
  }
  // What anybody asks who needs its last result: its request, or its proposals.
  Lookahead lookahead() const {
    const bool after = request->lookahead == Lookahead::kAfterResult || proposals.awaited;
    return after ? Lookahead::kAfterResult : Lookahead::kBlind;
  }
  // Whether a step can compute its next token: it is there, or a step in flight samples it and
  // nobody needs to see it first.
  bool can_decode() const;
  // Tokens of its prompt that no step was given yet. REQUIRES: Prefilling
  int32_t unplanned_prompt() const { return std::get<Prefilling>(state).target - extent.most; }
  int32_t prompt_length() const { return static_cast<int32_t>(request->prompt.size()); }
  int32_t known_length() const { return prompt_length() + static_cast<int32_t>(output.size()); }
  std::vector<TokenId> known_tokens() const {
    std::vector<TokenId> tokens = request->prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    return tokens;
  }
  // The most tokens that are ever in its KV: the last token is sampled, not computed.
  int32_t length_max() const {
    return prompt_length() + std::max(0, request->sampling.max_tokens - 1);
  }
};

// The sequence that the rank of this one is of: itself, or the first of its search.
Sequence& ranked_by(Sequence& sequence);
// The running sequences that stand or fall with this one: itself, or all of its search.
std::vector<Sequence*> running_with(Sequence& sequence);

struct ByRank {
  bool operator()(const Sequence* a, const Sequence* b) const { return a->rank < b->rank; }
};
// Sequences that queue for themselves, by rank.
using WaitingQueue = std::set<Sequence*, ByRank>;

}  // namespace headrace
