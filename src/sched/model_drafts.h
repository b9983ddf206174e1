// Which sequences a draft model proposes tokens for in a step, and how many (Work::drafted).
//
// Its passes follow one another, each with a token of every sequence that drafts, and the step that
// verifies is longer by their rows. All draft to the depth that brings most tokens for the time, by
// the measured cost of steps and passes and by what of each sequence's proposals was right. A pass
// may cost too much for one and little for many: where drafting pays for all that may, they begin
// together. The draft has computed nothing of a sequence that never drafted, or has not lately:
// catching up costs what a prompt costs, which what is left of the answer must bring in. Where the
// draft is mostly wrong a sequence is tried now and then, out of a share of the time of all steps:
// so the loss stays below that share.
//
// Where trees may be proposed, the depth and the size that bring most are chosen together, by how
// often tokens of each place in a tree were right (draft_chances.h); a chain is one of the choices.
// Heads that all read one row (Medusa) are told the form of the tree, others the sizes alone: which
// branches are likely they know better.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/draft_chances.h"
#include "sched/draft_cost.h"
#include "sched/scheduler.h"
#include "sched/step_draft.h"
#include "sched/step_pace.h"

namespace headrace {

// One thread, the scheduler's.
class ModelDrafts {
 public:
  // Both outlive this object.
  ModelDrafts(const SchedulerOptions& options, const StepPace& pace)
      : options_(options), pace_(pace) {}

  struct Candidate {
    DraftEntry* entry = nullptr;
    int32_t most = 0;     // tokens that may stand behind each other
    int32_t places = 0;   // tokens that may be proposed for it, of all branches
    bool awaited = true;  // false: not in this step, as it was planned ahead
  };
  // Of all that decode and may have proposals: gives them their counts, `tokens_left` together at
  // most.
  void give(StepBudget& budget, std::span<const Candidate> candidates, int32_t tokens_left);
  // A step has verified what was proposed for a sequence; the first `accepted` of `tokens` are on
  // its path.
  void note(Sequence& sequence, const TokenTree& proposed, const StepTokens& tokens,
            int32_t accepted);
  // Every step; `seconds` is what it took in all.
  void note_step(const StepResult::Drafting& drafting, double seconds);

  double seconds() const { return seconds_; }  // of all passes

 private:
  // Acceptance by sequence and over all, a mean of the last kAcceptanceMemory proposals or so. What
  // is not known yet counts as so many proposals that went as usual, or as guessed at the start.
  static constexpr double kAcceptanceMemory = 48, kPriorWeight = 4, kFirstGuess = 0.7;
  // Below so many right ones of all, pauses get longer.
  static constexpr double kPoor = 0.4;
  static constexpr int32_t kShortPause = 16, kPauseMin = 64, kPauseMax = 4096;
  // Where steps overlap each pause ends with one that the sequence misses.
  static constexpr int32_t kOverlappedPause = 128;
  // The first steps with drafts go through all depths, whatever the rule says: before them nothing
  // is known of what rows and passes cost.
  static constexpr int32_t kLessons = 16;
  static constexpr size_t kLearners = 2;  // sequences that take part in them
  // What is tried in vain: steps of a trial, tokens of each, its share of the time of all steps,
  // and what is saved up of that at most.
  static constexpr int32_t kTrialSteps = 4, kTrialTokens = 2;
  static constexpr double kTrialShare = 0.01, kTrialSecondsMax = 4;
  // An answer is expected to go on for as long as it may, and for so many tokens at most.
  static constexpr int32_t kExpectedTokens = 256;

  // A chain is tried with a second first token in one step of so many.
  static constexpr int32_t kLookAsideEvery = 32;

  // What is drafted for each sequence of a step.
  struct Choice {
    int32_t depth = 0, tokens = 0;
    int32_t width = 1;         // 1: a chain
    TokenTree ranks = {};      // as DraftForm::ranks
    double saved_seconds = 0;  // of a step, for the tokens that it brings
    double gain = 0;           // these tokens
  };
  bool weighs() const {
    return !options_.proposals.whatever_they_cost && options_.clock != nullptr;
  }
  bool learns() const { return lessons_ < kLessons; }
  int32_t short_pause() const {
    return options_.steps_in_flight_max > 1 ? kOverlappedPause : kShortPause;
  }
  bool may_branch() const { return options_.proposals.tree_width > 1; }
  // Whether the draft is told which branches its trees have.
  bool tells_form() const {
    return options_.proposals.method == ProposalMethod::kMedusa || !options_.proposals.tree.empty();
  }
  Choice choice_for(const StepLoad& load);
  void look_aside(Choice& choice) const;
  Choice tree_of(int32_t depth) const;
  void draft(StepBudget& budget, const Candidate& candidate, const Choice& choice,
             int32_t& tokens_left);
  bool begins(Sequence& sequence, const StepLoad& load);
  void gather(const StepLoad& load, std::span<const Candidate> candidates);
  bool pays(const Sequence& sequence, const Choice& choice, size_t sharers) const;
  double catch_up_seconds(const Sequence& sequence) const;
  Choice best_choice(const StepLoad& load, std::span<const Candidate> candidates) const;
  Choice best_chain(const StepLoad& load, std::span<const Candidate> candidates) const;
  Choice best_tree(const StepLoad& load, std::span<const Candidate> candidates) const;
  DraftChances::Grown grow(DraftChances::Bounds bounds, double shift) const;
  void stop(Sequence& sequence) const;

  const SchedulerOptions& options_;
  const StepPace& pace_;
  DraftCost cost_;
  int32_t lessons_ = 0;  // steps with drafts, up to kLessons
  MeasuredShare usual_{.mean = kFirstGuess, .weight = kPriorWeight};
  DraftChances chances_;
  int32_t chains_ = 0;        // steps with chains, since one had a second first token
  double trial_seconds_ = 0;  // that may still be spent on trials
  double seconds_ = 0;
  // Of a step; kept for their memory.
  std::vector<Candidate> drafting_;
  std::vector<Candidate> crowd_;  // drafting pays where all of them do
  Choice of_crowd_;
};

}  // namespace headrace
