// One step, as plain data: a rank needs nothing else, a test can print it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/logprobs.h"
#include "kv/sequence_blocks.h"
#include "kv/tier_pool.h"
#include "sched/draft_form.h"
#include "sched/request.h"
#include "sched/token_tree.h"

namespace headrace {

// A sequence gets a slot (row of the SlotTable). `tokens` is everything known of it: the prompt
// and, after a preemption or for a forked choice, what it has generated.
struct Admission {
  SequenceId sequence;
  SlotId slot;
  int32_t choice = 0;
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;
  std::vector<GroupBlocks> blocks;  // shared blocks it starts with (fork, prefix hit)
  // The state it starts with, of models that keep such: copied to its slot before any work of the
  // step, and before a step saves another there. Empty: that of no token, or of a fork, which gets
  // its leader's behind the step's work (Work::also_sample).
  std::optional<CheckpointId> checkpoint = {};
};

// The state of a sequence behind its first `tokens` tokens is copied to a checkpoint when the work
// that computes the last of them comes to it.
struct StateSave {
  int32_t tokens = 0;
  CheckpointId checkpoint;
};

// kVerify: the rows of the last known token and of all proposals behind it.
enum class LogitRows : uint8_t { kNone, kLast, kAll, kVerify };

// Another choice that samples its first token from the same last row (n > 1).
struct SampleTarget {
  SequenceId sequence;
  SlotId slot;
};

// Compute tokens [first, first + count) of one sequence. The last may be a token that a step still
// in flight samples: it is then read from the slot (design: sampled tokens stay on the device).
struct Work {
  SequenceId sequence;
  SlotId slot;
  int32_t first = 0;
  int32_t count = 0;
  LogitRows rows = LogitRows::kNone;  // kAll: prompt log-probabilities of these tokens
  bool samples = false;               // the last row draws the sequence's next token
  // Of a choice that has ended: computed because its batch is (static), for nobody.
  bool ended = false;
  // The last so many of the tokens, which nobody has sampled: each of their rows, and that before
  // them, samples, and they are accepted up to the first that is not what was sampled. Of a tree
  // each lies at the place that its index says and is at the position that its depth says; those
  // that are accepted are moved to the places of a chain before the step's result is given.
  TokenTree proposed;
  // The same, of tokens that the runner proposes when it has the step (a draft model), so many at
  // most and of this form; those that it does not propose are not computed. Then `proposed` is
  // empty.
  int32_t drafted = 0;
  DraftForm form = {};
  std::vector<SampleTarget> also_sample;
  std::vector<GroupBlocks> new_blocks;
  std::vector<StateSave> saves = {};  // ascending, in (first, first + count]

  // The most tokens of it that nobody has sampled.
  int32_t proposal_count() const { return proposed.size() + drafted; }
};

struct ReleasedSlot {
  SequenceId sequence;
  SlotId slot;
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<ReleasedSlot> released;  // first: their slots may be admitted again below
  std::vector<Admission> admitted;
  // Pages that change tiers (kv/tier_pool.h). Stores are done in their order, before anything else
  // of this step writes a page; stores ahead of need and loads after them, in this order and before
  // the next step: no work of this step writes what the ones read or reads what the others bring.
  std::vector<PageMove> stores, stores_ahead, loads;
  std::vector<BlockCopy> copies;
  std::vector<Work> work;
  int32_t token_count = 0;  // sum of count

  // Nothing to do. (A plan without work may still move pages.)
  bool empty() const {
    return work.empty() && stores.empty() && stores_ahead.empty() && loads.empty();
  }
  std::string to_string() const;
};

struct StepResult {
  struct Row {
    SequenceId sequence;
    StepTokens accepted;     // sampled tokens, in order: one, and one a proposal accepted
    TokenTree drafted = {};  // of Work::drafted, what the runner has proposed
    std::vector<TokenLogprobs> logprobs;  // per accepted token, when asked for
    // For rows = kAll: entry i belongs to prompt token first + i + 1 (the last row of the whole
    // prompt has none).
    std::vector<TokenLogprobs> prompt_logprobs;
    bool fault = false;  // NaN row
    // Of a form (Request::constraint): no token may come, and `accepted` says nothing; or the last
    // one accepted ended it, whatever min_tokens and ignore_eos say.
    bool dead_end = false, form_ended = false;
  };
  std::vector<Row> rows;  // one per Work and per SampleTarget that sampled or scored

  // What the runner's draft model has computed in this step.
  struct Drafting {
    int32_t passes = 0;  // one behind the other
    int32_t rows = 0;    // of all passes, with tokens that it had not computed before
    double seconds = 0;  // of the step's
  };
  Drafting drafting = {};
};

}  // namespace headrace
