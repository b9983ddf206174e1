#include "sched/proposer.h"

#include <algorithm>

namespace headrace {

// Penalties count what stands before a row, which for the rows of a step is known one by one. What
// runs in the background takes what others leave and needs no speed. A beam samples nothing.
bool Proposer::may_have(const Sequence& sequence) const {
  const bool formed = sequence.request->constraint != nullptr;
  return !counts_outputs(sequence.request->sampling) && !sequence.rank.background &&
         !sequence.request->beams && (formed ? jumps_ahead_ : source_ != nullptr || by_runner_);
}

// An answer with a form has its form's: what other sources propose the form may forbid.
DraftSource* Proposer::source_of(const Sequence& sequence) {
  return sequence.request->constraint != nullptr ? &forms_ : source_.get();
}

// What is accepted must not pass its end.
int32_t Proposer::most_for(const Sequence& sequence, int32_t tokens_left) const {
  const int32_t to_end =
      std::min(sequence.length_max(), options_.max_model_len) - sequence.known_length();
  const bool formed = sequence.request->constraint != nullptr;
  const int32_t most = formed ? kProposedTokensMax : options_.proposals.tokens_max;
  return std::max(0, std::min({most, tokens_left, to_end}));
}

// Half of what is left at most: prompts go on.
void Proposer::propose(StepDraft& draft, int32_t kept) {
  int32_t left = (draft.budget.tokens_left - kept) / 2;
  if (by_runner_) return give_drafts(draft, left);
  if (source_ == nullptr && !jumps_ahead_) return;
  for (DraftEntry& candidate : draft.candidates) {
    Sequence& sequence = *candidate.sequence;
    const bool decodes = candidate.count == 1 && sequence.is<Decoding>();
    if (!decodes || !sequence.proposals.awaited) continue;
    const int32_t given = give(draft, candidate, left);
    left -= given;
    if (given == 0) note_none(sequence);
  }
}

void Proposer::give_drafts(StepDraft& draft, int32_t tokens_left) {
  asked_.clear();
  for (DraftEntry& candidate : draft.candidates) {
    const Sequence& sequence = *candidate.sequence;
    const bool decodes = candidate.count == 1 && sequence.is<Decoding>();
    if (!decodes || !may_have(sequence)) continue;
    asked_.push_back({.entry = &candidate,
                      .most = most_for(sequence, tokens_left),
                      .awaited = sequence.proposals.awaited});
  }
  drafts_.give(draft.budget, asked_, tokens_left);
}

// How many it got.
int32_t Proposer::give(StepDraft& draft, DraftEntry& candidate, int32_t tokens_left) {
  Sequence& sequence = *candidate.sequence;
  const int32_t most = most_for(sequence, tokens_left);
  if (most == 0) return 0;
  if (sequence.request->constraint != nullptr && sequence.draft_memory == nullptr) {
    sequence.proposals.acceptance = kFormAcceptance;
  }
  source_of(sequence)->propose(sequence, most, candidate.proposed);
  const auto found = static_cast<int32_t>(candidate.proposed.size());
  const int32_t given = worthwhile(draft.budget.load, sequence, found);
  candidate.proposed.resize(static_cast<size_t>(given));
  candidate.count += given;
  draft.budget.take(sequence, sequence.extent.most + 1, given);
  return given;
}

// Where steps do not overlap nothing is lost by waiting.
void Proposer::note_none(Sequence& sequence) const {
  ProposalRecord& record = sequence.proposals;
  if (options_.steps_in_flight_max == 1 || ++record.in_vain < kInVainMax) return;
  record.in_vain = 0;
  record.pause = kPauseTokens;
}

// A step of D tokens that takes S seconds is worth a longer one, by s, for g tokens more where
// g / D > s / S. The i-th proposal brings a token where it and all before it are accepted.
int32_t Proposer::worthwhile(const StepLoad& load, const Sequence& sequence, int32_t most) const {
  if (!pace_.knows()) return most;
  const double seconds = pace_.cost().seconds(load);
  StepLoad with = load;
  double chance = 1, gain = 0;
  int32_t best = 0;
  for (int32_t i = 1; i <= most; ++i) {
    chance *= sequence.proposals.acceptance;
    gain += chance;
    with.add_decode(sequence.extent.most + i);
    const double longer = pace_.cost().seconds(with) - seconds;
    if (gain / std::max(1.0, load.decodes) > longer / seconds) best = i;
  }
  return best;
}

void Proposer::note(Sequence& sequence, int32_t proposed, int32_t accepted) {
  proposed_ += static_cast<uint64_t>(proposed);
  accepted_ += static_cast<uint64_t>(accepted);
  verifications_ += proposed > 0 ? 1 : 0;
  if (by_runner_) return drafts_.note(sequence, proposed, accepted);
  ProposalRecord& record = sequence.proposals;
  record.in_vain = 0;
  for (int32_t i = 0; i < std::min(proposed, accepted + 1); ++i) {
    record.acceptance += kLearning * ((i < accepted ? 1.0 : 0.0) - record.acceptance);
  }
  if (record.acceptance < kWorthWaiting) record = {.pause = kPauseTokens};
}

void Proposer::note_token_without(Sequence& sequence) {
  if (sequence.proposals.pause > 0) --sequence.proposals.pause;
}

void Proposer::count(SchedulerStats& stats) const {
  stats.proposals.proposed = proposed_;
  stats.proposals.accepted = accepted_;
  stats.proposals.verifications = verifications_;
  stats.proposals.draft_seconds = drafts_.seconds();
}

}  // namespace headrace
