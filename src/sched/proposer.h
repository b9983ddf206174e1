// Which sequences get proposals in a step, and how many: those that together are worth the time
// that a step takes longer with them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sched/draft_source.h"
#include "sched/form_source.h"
#include "sched/model_drafts.h"
#include "sched/scheduler.h"
#include "sched/step_draft.h"
#include "sched/step_pace.h"

namespace headrace {

class Proposer {
 public:
  // All outlive this object. `source` null: a draft model's, or nobody gets any.
  Proposer(const SchedulerOptions& options, const StepPace& pace,
           std::shared_ptr<DraftSource> source)
      : options_(options),
        pace_(pace),
        source_(std::move(source)),
        drafts_(options, pace),
        by_runner_(source_ == nullptr && drafts_in_runner(options.proposals.method)),
        jumps_ahead_(options.proposals.jump_ahead && !by_runner_ &&
                     options.steps_in_flight_max == 1 && !options.state_checkpoints.has_value() &&
                     options.proposals.synthetic_acceptance < 0) {
    // Until more is known, of those left half are the next branch's.
    double left = 1;
    for (double& share : branch_share_) share = left /= 2;
  }

  // Asks that a sequence is planned only behind its last result: a proposal needs to know the last
  // token. One whose proposals fail, or that gets none, is planned ahead as without them for a
  // while.
  void ask(Sequence& sequence) const {
    if (source_ == nullptr && !by_runner_ && !jumps_ahead_) return;
    sequence.proposals.awaited = sequence.proposals.pause == 0 && may_have(sequence);
  }
  // Gives proposals to the candidates that decode, out of what the step has left beside
  // `kept` tokens for the oldest prompt.
  void propose(StepDraft& draft, int32_t kept);
  // A step has verified a work's proposals. `verified` null: they brought no row.
  void note(Sequence& sequence, const Work& work, const StepResult::Row* verified);
  // A step has sampled a token of a sequence without proposals.
  void note_token_without(Sequence& sequence);
  // A step was applied that took `seconds`.
  void note_step(const StepResult& result, double seconds) {
    if (by_runner_) drafts_.note_step(result.drafting, seconds);
  }
  void count(SchedulerStats& stats) const;

 private:
  // Planned behind its result, a sequence loses what the host does meanwhile: below this share of
  // accepted proposals, or after so many steps without any, it pauses.
  static constexpr double kWorthWaiting = 0.25;
  static constexpr int32_t kInVainMax = 8, kPauseTokens = 128;
  static constexpr double kLearning = 1.0 / 8, kBranchLearning = 1.0 / 64;

  // What a row costs beside a step is not known before so many steps had proposals: where one
  // sequence decodes, both are half of what a step takes, and nothing would ever be proposed.
  static constexpr uint64_t kTrials = 16;

  // Of an answer that has a form more than of others is accepted, from the first on.
  static constexpr double kFormAcceptance = 0.9;

  bool may_have(const Sequence& sequence) const;
  DraftSource* source_of(const Sequence& sequence);
  void give_drafts(StepDraft& draft, int32_t tokens_left);
  int32_t places_left(const Sequence& sequence) const;
  int32_t most_for(const Sequence& sequence, int32_t tokens_left) const;
  ProposalBounds bounds_for(const Sequence& sequence, int32_t tokens_left) const;
  void ask_source(DraftEntry& candidate, int32_t tokens_left);
  void note_none(Sequence& sequence) const;
  void keep_first(int32_t tokens_left);
  void keep_worthwhile(const StepLoad& load, int32_t tokens_left);
  std::vector<double> chances(const TokenTree& tree, double acceptance) const;
  void note_branch(const TokenTree& tree, int32_t chosen);

  const SchedulerOptions& options_;
  const StepPace& pace_;
  const std::shared_ptr<DraftSource> source_;
  ModelDrafts drafts_;
  FormSource forms_;
  const bool by_runner_;    // a draft model proposes
  const bool jumps_ahead_;  // forms propose
  // Of a step; kept for their memory.
  std::vector<ModelDrafts::Candidate> asked_;
  std::vector<DraftEntry*> proposed_for_;
  // Of the tokens that were accepted where a tree had several, the share that came first among
  // them, second, ..., lately.
  std::array<double, kTreeWidthMax> branch_share_;
  uint64_t verifications_ = 0, proposed_ = 0, accepted_ = 0;
  decltype(ProposalStats::accepted_at) accepted_at_{};
};

}  // namespace headrace
