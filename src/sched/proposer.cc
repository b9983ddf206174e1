#include "sched/proposer.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"

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

// Until it ends.
int32_t Proposer::places_left(const Sequence& sequence) const {
  return std::min(sequence.length_max(), options_.max_model_len) - sequence.known_length();
}

// What is accepted must not pass its end.
int32_t Proposer::most_for(const Sequence& sequence, int32_t tokens_left) const {
  const bool formed = sequence.request->constraint != nullptr;
  const int32_t most = formed ? kProposedTokensMax : options_.proposals.tokens_max;
  return std::max(0, std::min({most, tokens_left, places_left(sequence)}));
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
                      .places = places_left(sequence),
                      .awaited = sequence.proposals.awaited});
  }
  drafts_.give(draft.budget, asked_, tokens_left);
}

// A tree's rows take places as a chain's do: no more than the sequence may get to.
ProposalBounds Proposer::bounds_for(const Sequence& sequence, int32_t tokens_left) const {
  const int32_t depth = most_for(sequence, tokens_left);
  const ProposalOptions& wanted = options_.proposals;
  const bool tree = wanted.tree_width > 1 && sequence.request->constraint == nullptr;
  if (!tree || depth == 0) return {.depth = depth, .tokens = depth};
  const int32_t tokens = std::min({wanted.tree_tokens, tokens_left, places_left(sequence)});
  return {.depth = std::min(depth, tokens), .tokens = tokens};
}

// How many it got.
int32_t Proposer::give(StepDraft& draft, DraftEntry& candidate, int32_t tokens_left) {
  Sequence& sequence = *candidate.sequence;
  const ProposalBounds bounds = bounds_for(sequence, tokens_left);
  if (bounds.depth == 0) return 0;
  if (sequence.request->constraint != nullptr && sequence.draft_memory == nullptr) {
    sequence.proposals.acceptance = kFormAcceptance;
  }
  source_of(sequence)->propose(sequence, bounds, candidate.proposed);
  CHECK_MSG(candidate.proposed.valid() && candidate.proposed.size() <= bounds.tokens,
            "a source proposed what is no tree, or too much");
  keep_worthwhile(draft.budget.load, sequence, candidate.proposed);
  const int32_t given = candidate.proposed.size();
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

// Of each token: that it and all on its path are accepted.
std::vector<double> Proposer::chances(const TokenTree& tree, double acceptance) const {
  std::vector<double> chances;
  for (int32_t i = 0; i < tree.size(); ++i) {
    const int32_t parent = tree.parent(i);
    double chance = acceptance;
    if (parent != TokenTree::kBeforeAll) chance *= chances[static_cast<size_t>(parent)];
    if (tree.forks(parent)) chance *= branch_share_[static_cast<size_t>(tree.rank(i))];
    chances.push_back(chance);
  }
  return chances;
}

// A step of D tokens that takes S seconds is worth a longer one, by s, for g tokens more where
// g / D > s / S. A proposal brings a token where it and all before it are accepted: the likeliest
// are taken.
void Proposer::keep_worthwhile(const StepLoad& load, const Sequence& sequence,
                               TokenTree& tree) const {
  if (options_.proposals.whatever_they_cost || !pace_.knows() || verifications_ < kTrials) return;
  const double seconds = pace_.cost().seconds(load);
  StepLoad with = load;
  const std::vector<double> chance = chances(tree, sequence.proposals.acceptance);
  std::vector<int32_t> order(chance.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](int32_t i) { return chance[static_cast<size_t>(i)]; });
  double gain = 0;
  size_t best = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    gain += chance[static_cast<size_t>(order[i])];
    with.add_decode(sequence.extent.most + 1 + static_cast<int32_t>(i));
    const double longer = pace_.cost().seconds(with) - seconds;
    if (gain / std::max(1.0, load.decodes) > longer / seconds) best = i + 1;
  }
  std::vector<bool> kept(order.size(), false);
  for (size_t i = 0; i < best; ++i) kept[static_cast<size_t>(order[i])] = true;
  tree.keep(kept);
}

void Proposer::note(Sequence& sequence, const Work& work, const StepResult::Row* verified) {
  const bool by_runner = work.drafted > 0 && verified != nullptr;
  const int32_t proposed = by_runner ? verified->drafted.size() : work.proposal_count();
  const int32_t accepted =
      verified == nullptr ? 0 : std::max(0, static_cast<int32_t>(verified->accepted.size()) - 1);
  proposed_ += static_cast<uint64_t>(proposed);
  accepted_ += static_cast<uint64_t>(accepted);
  verifications_ += proposed > 0 ? 1 : 0;
  if (by_runner_) {
    if (verified != nullptr) {
      drafts_.note(sequence, verified->drafted, verified->accepted, accepted);
    }
    return;
  }
  ProposalRecord& record = sequence.proposals;
  record.in_vain = 0;
  const auto learn = [&](double right) {
    record.acceptance += kLearning * (right - record.acceptance);
  };
  int32_t last = TokenTree::kBeforeAll;  // of the branch that was chosen
  for (int32_t i = 0; i < accepted; ++i) {
    learn(1);
    last = work.proposed.child(last, verified->accepted[static_cast<size_t>(i)]);
    note_branch(work.proposed, last);
  }
  if (work.proposed.goes_on(last)) learn(0);
  if (record.acceptance < kWorthWaiting) record = {.pause = kPauseTokens};
}

void Proposer::note_branch(const TokenTree& tree, int32_t chosen) {
  if (!tree.forks(tree.parent(chosen))) return;
  for (size_t rank = 0; rank < branch_share_.size(); ++rank) {
    const double right = tree.rank(chosen) == static_cast<int32_t>(rank) ? 1 : 0;
    branch_share_[rank] += kBranchLearning * (right - branch_share_[rank]);
  }
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
