#include "sched/proposer.h"

#include <algorithm>
#include <functional>
#include <span>

#include "base/check.h"

namespace headrace {

// Penalties count what stands before a row, which for the rows of a step is known one by one. What
// runs in the background takes what others leave and needs no speed. A beam samples nothing.
bool Proposer::may_have(const Sequence& sequence) const {
  const bool formed = sequence.request->constraint != nullptr;
  return (formed ? jumps_ahead_ : source_ != nullptr || by_runner_) && !sequence.rank.background &&
         !sequence.request->beams && !counts_outputs(sequence.request->sampling);
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
  const int32_t left = (draft.budget.tokens_left - kept) / 2;
  if (by_runner_) return give_drafts(draft, left);
  if (source_ == nullptr && !jumps_ahead_) return;
  proposed_for_.clear();
  for (DraftEntry& candidate : draft.candidates) {
    const bool decodes = candidate.count == 1 && candidate.sequence->is<Decoding>();
    if (!decodes || !candidate.sequence->proposals.awaited) continue;
    ask_source(candidate, left);
    proposed_for_.push_back(&candidate);
  }
  const bool weighs =
      !options_.proposals.whatever_they_cost && pace_.knows() && verifications_ >= kTrials;
  weighs ? keep_worthwhile(draft.budget.load, left) : keep_first(left);
  for (DraftEntry* const candidate : proposed_for_) {
    Sequence& sequence = *candidate->sequence;
    const int32_t given = candidate->proposed.size();
    candidate->count += given;
    draft.budget.take(sequence, sequence.extent.most + 1, given);
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

void Proposer::ask_source(DraftEntry& candidate, int32_t tokens_left) {
  Sequence& sequence = *candidate.sequence;
  const ProposalBounds bounds = bounds_for(sequence, tokens_left);
  if (bounds.depth == 0) return;
  if (sequence.request->constraint != nullptr && sequence.draft_memory == nullptr) {
    sequence.proposals.acceptance = kFormAcceptance;
  }
  source_of(sequence)->propose(sequence, bounds, candidate.proposed);
  CHECK_MSG(candidate.proposed.valid() && candidate.proposed.size() <= bounds.tokens,
            "a source proposed what is no tree, or too much");
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

// What finds room, in the order of the sequences.
void Proposer::keep_first(int32_t tokens_left) {
  for (DraftEntry* const candidate : proposed_for_) {
    candidate->proposed.cut(std::min(candidate->proposed.size(), tokens_left));
    tokens_left -= candidate->proposed.size();
  }
}

// A step of D tokens that takes S seconds is worth a longer one, by s, for g tokens more where
// (D + g) / (S + s) is greater. A proposal brings a token where it and all before it are accepted.
// Those of all sequences are weighed together, the likeliest first: what the first row beyond a
// kernel's few costs is too much for one sequence and may be little for all of them.
void Proposer::keep_worthwhile(const StepLoad& load, int32_t tokens_left) {
  struct Proposal {
    size_t candidate;
    int32_t token;
    double chance;
  };
  std::vector<Proposal> order;
  for (size_t i = 0; i < proposed_for_.size(); ++i) {
    const DraftEntry& candidate = *proposed_for_[i];
    const std::vector<double> chance =
        chances(candidate.proposed, candidate.sequence->proposals.acceptance);
    for (int32_t j = 0; j < candidate.proposed.size(); ++j) {
      order.push_back({i, j, chance[static_cast<size_t>(j)]});
    }
  }
  std::ranges::stable_sort(order, std::greater(), &Proposal::chance);  // behind those before them
  order.resize(std::min(order.size(), static_cast<size_t>(std::max(0, tokens_left))));
  StepLoad with = load;
  double tokens = std::max(1.0, load.decodes);
  double best_rate = tokens / pace_.cost().seconds(load);
  size_t best = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    tokens += order[i].chance;
    with.add_decode(proposed_for_[order[i].candidate]->sequence->extent.most + 1 + order[i].token);
    const double rate = tokens / pace_.cost().seconds(with);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = i + 1;
  }
  std::vector<std::vector<bool>> kept;
  for (const DraftEntry* const candidate : proposed_for_) {
    kept.emplace_back(static_cast<size_t>(candidate->proposed.size()), false);
  }
  for (const Proposal& proposal : std::span(order).first(best)) {
    kept[proposal.candidate][static_cast<size_t>(proposal.token)] = true;
  }
  for (size_t i = 0; i < kept.size(); ++i) proposed_for_[i]->proposed.keep(kept[i]);
}

void Proposer::note(Sequence& sequence, const Work& work, const StepResult::Row* verified) {
  const bool by_runner = work.drafted > 0 && verified != nullptr;
  const int32_t proposed = by_runner ? verified->drafted.size() : work.proposal_count();
  const int32_t accepted =
      verified == nullptr ? 0 : std::max(0, static_cast<int32_t>(verified->accepted.size()) - 1);
  proposed_ += static_cast<uint64_t>(proposed);
  accepted_ += static_cast<uint64_t>(accepted);
  const auto right = std::min(static_cast<size_t>(accepted), accepted_at_.size());
  for (size_t i = 0; i < right; ++i) ++accepted_at_[i];
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
  stats.proposals.accepted_at = accepted_at_;
  stats.proposals.verifications = verifications_;
  stats.proposals.draft_seconds = drafts_.seconds();
}

}  // namespace headrace
