#include "sched/model_drafts.h"

#include <algorithm>

namespace headrace {
namespace {

// Its first tokens, without those that are too deep.
TokenTree up_to(TokenTree ranks, int32_t depth, int32_t tokens) {
  ranks.cut(std::min(tokens, ranks.size()));
  std::vector<bool> kept;
  for (int32_t i = 0; i < ranks.size(); ++i) kept.push_back(ranks.depth(i) < depth);
  ranks.keep(kept);
  return ranks;
}

}  // namespace

// While the cost of a step without proposals is not known, there are none.
void ModelDrafts::give(StepBudget& budget, std::span<const Candidate> candidates,
                       int32_t tokens_left) {
  if (weighs() && !pace_.knows()) return;
  drafting_.clear();
  gather(budget.load, candidates);
  for (const Candidate& candidate : candidates) {
    Sequence& sequence = *candidate.entry->sequence;
    ProposalRecord& record = sequence.proposals;
    if (!candidate.awaited) continue;
    if (candidate.most == 0) {
      record.pause = short_pause();
      continue;
    }
    if (weighs() && learns() && drafting_.size() >= kLearners) break;
    if (!weighs() || record.begun || begins(sequence, budget.load)) {
      record.begun = true;
      drafting_.push_back(candidate);
    } else {
      record.pause = short_pause();
    }
  }
  const Choice choice = choice_for(budget.load);
  for (const Candidate& candidate : drafting_) draft(budget, candidate, choice, tokens_left);
}

void ModelDrafts::draft(StepBudget& budget, const Candidate& candidate, const Choice& choice,
                        int32_t& tokens_left) {
  DraftEntry& entry = *candidate.entry;
  ProposalRecord& record = entry.sequence->proposals;
  int32_t depth = choice.depth;
  if (record.trial_steps > 0) depth = std::max(depth, kTrialTokens), --record.trial_steps;
  if (depth == 0) return stop(*entry.sequence);
  const bool branches = choice.depth > 0 && choice.width > 1;
  const int32_t places = branches ? std::min(choice.tokens, candidate.places) : depth;
  int32_t tokens = std::min(places, tokens_left);
  depth = std::min({depth, candidate.most, tokens});
  entry.form = {.depth = depth, .width = branches ? choice.width : 1};
  if (!branches) tokens = depth;
  if (branches && !choice.ranks.empty()) {
    entry.form.ranks = up_to(choice.ranks, depth, tokens);
    tokens = entry.form.ranks.size();
  }
  entry.drafted = tokens;
  entry.count += tokens;
  budget.take(*entry.sequence, entry.sequence->extent.most + 1, tokens);
  tokens_left -= tokens;
}

// Those that have begun, and those that catching up pays for once all others draft as well; their
// pauses end, but for pauses of sequences that were mostly wrong.
void ModelDrafts::gather(const StepLoad& load, std::span<const Candidate> candidates) {
  crowd_.clear();
  of_crowd_ = {};
  if (!weighs() || learns()) return;
  for (const Candidate& candidate : candidates) {
    ProposalRecord& record = candidate.entry->sequence->proposals;
    const bool stopped = record.pause > 0 && record.next_pause > 0 && record.acceptance < kPoor;
    if (candidate.most == 0 || (!record.begun && stopped)) continue;
    if (!record.begun) record.acceptance = usual_.mean;
    crowd_.push_back(candidate);
  }
  const Choice of_all = best_choice(load, crowd_);
  const size_t sharers = crowd_.size();
  std::erase_if(crowd_, [&](const Candidate& candidate) {
    const Sequence& sequence = *candidate.entry->sequence;
    return !sequence.proposals.begun && !pays(sequence, of_all, sharers);
  });
  of_crowd_ = best_choice(load, crowd_);
  if (of_crowd_.depth == 0) return;
  for (const Candidate& candidate : crowd_) candidate.entry->sequence->proposals.pause = 0;
}

// Before anything is known all depths in turn, and chains as well as trees.
ModelDrafts::Choice ModelDrafts::choice_for(const StepLoad& load) {
  const int32_t deepest = options_.proposals.tokens_max;
  const auto whole = [&](int32_t depth, bool branches) {
    return branches ? tree_of(depth) : Choice{.depth = depth, .tokens = depth};
  };
  if (!weighs()) return whole(deepest, may_branch());
  if (learns()) return whole(1 + lessons_ % deepest, may_branch() && lessons_ % 2 == 0);
  Choice choice = best_choice(load, drafting_);
  if (choice.depth == 0) choice = of_crowd_;
  if (may_branch() && choice.depth > 0 && choice.width == 1 && ++chains_ % kLookAsideEvery == 0) {
    look_aside(choice);
  }
  return choice;
}

// All that may be of this depth, a few tokens for each place.
ModelDrafts::Choice ModelDrafts::tree_of(int32_t depth) const {
  const ProposalOptions& wanted = options_.proposals;
  const int32_t tokens =
      weighs() ? std::min(wanted.tree_tokens, depth * wanted.tree_width) : wanted.tree_tokens;
  DraftChances::Grown grown =
      grow({.depth = depth, .width = wanted.tree_width, .tokens = tokens}, 0);
  Choice choice{.depth = depth, .tokens = grown.ranks.size(), .width = wanted.tree_width};
  if (tells_form()) choice.ranks = std::move(grown.ranks);
  return choice;
}

// A chain tells nothing of what might stand beside it.
void ModelDrafts::look_aside(Choice& choice) const {
  const TokenTree& within = options_.proposals.tree;
  if (!within.empty() && within.child(TokenTree::kBeforeAll, 1) == TokenTree::kBeforeAll) return;
  choice.width = 2;
  for (int32_t i = 0; i < choice.depth; ++i) {
    choice.ranks.tokens.push_back(0);
    choice.ranks.parents.push_back(i - 1);
  }
  choice.ranks.tokens.push_back(1);
  choice.ranks.parents.push_back(TokenTree::kBeforeAll);
  choice.tokens = choice.ranks.size();
}

// Whether what is left of its answer brings in what catching up costs; else it is tried where that
// may be spent.
bool ModelDrafts::begins(Sequence& sequence, const StepLoad& load) {
  ProposalRecord& record = sequence.proposals;
  record.acceptance = usual_.mean;
  record.acceptance_weight = kPriorWeight;
  if (learns()) return true;
  if (pays(sequence, of_crowd_, crowd_.size())) return true;
  DraftEntry entry{.sequence = &sequence};
  const Candidate alone{.entry = &entry,
                        .most = options_.proposals.tokens_max,
                        .places = options_.proposals.tree_tokens};
  if (pays(sequence, best_choice(load, {&alone, 1}), 1)) return true;
  const double trial =
      catch_up_seconds(sequence) + kTrialSteps * cost_.seconds(kTrialTokens, kTrialTokens);
  if (trial > trial_seconds_) return false;
  trial_seconds_ -= trial;
  record.trial_steps = kTrialSteps;
  return true;
}

// Whether its share of what `sharers` save together by drafting so brings in what it costs to catch
// up, before its answer ends.
bool ModelDrafts::pays(const Sequence& sequence, const Choice& choice, size_t sharers) const {
  if (choice.depth == 0 || sharers == 0) return false;
  const auto count = static_cast<double>(sharers);
  const int32_t left = std::min(kExpectedTokens, sequence.length_max() - sequence.known_length());
  const double steps = left / (1 + choice.gain / count);
  return steps * choice.saved_seconds / count >= catch_up_seconds(sequence);
}

// A prefix that was found may hold keys of the model alone: it counts as not drafted.
double ModelDrafts::catch_up_seconds(const Sequence& sequence) const {
  return cost_.per_row() * (sequence.known_length() - sequence.proposals.drafted_to);
}

// A step of D tokens that takes S seconds is worth a longer one, by s, for g tokens more where
// g / D > s / S: the depth of the greatest (D + g) / (S + s).
ModelDrafts::Choice ModelDrafts::best_choice(const StepLoad& load,
                                             std::span<const Candidate> candidates) const {
  if (candidates.empty()) return {};
  return may_branch() ? best_tree(load, candidates) : best_chain(load, candidates);
}

ModelDrafts::Choice ModelDrafts::best_chain(const StepLoad& load,
                                            std::span<const Candidate> candidates) const {
  const double seconds = pace_.cost().seconds(load);
  const double tokens = std::max(1.0, load.decodes);
  StepLoad with = load;
  std::vector<double> chances(candidates.size(), 1);
  double gain = 0, rows = 0, best_rate = tokens / seconds;
  Choice best;
  for (int32_t depth = 1; depth <= options_.proposals.tokens_max; ++depth) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (depth > candidates[i].most) continue;
      const Sequence& sequence = *candidates[i].entry->sequence;
      chances[i] *= sequence.proposals.acceptance;
      gain += chances[i];
      with.add_decode(sequence.extent.most + depth);
      ++rows;
    }
    const double longer = pace_.cost().seconds(with) - seconds + cost_.seconds(depth, rows);
    const double rate = (tokens + gain) / (seconds + longer);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = {.depth = depth,
            .tokens = depth,
            .saved_seconds = seconds * gain / tokens - longer,
            .gain = gain};
  }
  return best;
}

DraftChances::Grown ModelDrafts::grow(DraftChances::Bounds bounds, double shift) const {
  const TokenTree& within = options_.proposals.tree;
  if (!within.empty()) bounds.within = &within;
  return chances_.grow(bounds, shift);
}

// The same rule, over depths, and of each over chains and trees of all sizes, for a sequence that
// is as often right as they are in the mean. A pass computes as many tokens as may stand behind
// one.
ModelDrafts::Choice ModelDrafts::best_tree(const StepLoad& load,
                                           std::span<const Candidate> candidates) const {
  const ProposalOptions& wanted = options_.proposals;
  const double seconds = pace_.cost().seconds(load);
  const double tokens = std::max(1.0, load.decodes);
  const auto count = static_cast<double>(candidates.size());
  double acceptance = 0;
  int32_t deepest = 1, most = wanted.tree_tokens;
  for (const Candidate& candidate : candidates) {
    acceptance += candidate.entry->sequence->proposals.acceptance / count;
    deepest = std::max(deepest, std::min(candidate.most, wanted.tokens_max));
  }
  StepLoad with = load;
  std::vector<double> longer;  // [tokens - 1] of a step that verifies so many of each
  for (int32_t i = 1; i <= most; ++i) {
    for (const Candidate& candidate : candidates) {
      with.add_decode(candidate.entry->sequence->extent.most + i);
    }
    longer.push_back(pace_.cost().seconds(with) - seconds);
  }
  Choice best;
  double best_rate = tokens / seconds;
  for (int32_t depth = 1; depth <= std::min(deepest, most); ++depth) {
    for (const int32_t width : {1, wanted.tree_width}) {
      const DraftChances::Grown grown =
          grow({.depth = depth, .width = width, .tokens = most}, acceptance - usual_.mean);
      double gain = 0;
      for (int32_t i = 0; i < grown.ranks.size(); ++i) {
        gain += count * grown.chances[static_cast<size_t>(i)];
        if (width == 1 && i + 1 < depth) continue;
        const bool by_heads = wanted.method == ProposalMethod::kMedusa;
        const int32_t rows = by_heads ? depth : 1 + std::min(i, (depth - 1) * width);
        const double all = longer[static_cast<size_t>(i)] + cost_.seconds(depth, count * rows);
        const double rate = (tokens + gain) / (seconds + all);
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = {.depth = depth, .tokens = i + 1, .width = width, .gain = gain};
        best.saved_seconds = seconds * gain / tokens - all;
      }
    }
  }
  if (best.width > 1 && tells_form()) {
    best.ranks = grow({.depth = best.depth, .width = best.width, .tokens = best.tokens},
                      acceptance - usual_.mean)
                     .ranks;
  }
  return best;
}

// Where it is mostly wrong, for longer each time.
void ModelDrafts::stop(Sequence& sequence) const {
  ProposalRecord& record = sequence.proposals;
  record.begun = false;
  record.pause = short_pause();
  if (record.acceptance >= kPoor) return;
  record.next_pause = std::clamp(2 * record.next_pause, kPauseMin, kPauseMax);
  record.pause = record.next_pause;
}

// Of each place on the path where something was proposed, whether the likeliest was right.
void ModelDrafts::note(Sequence& sequence, const TokenTree& proposed, const StepTokens& tokens,
                       int32_t accepted) {
  ProposalRecord& record = sequence.proposals;
  int32_t last = TokenTree::kBeforeAll;
  for (int32_t depth = 0; depth <= accepted && proposed.goes_on(last); ++depth) {
    const int32_t children = proposed.is_chain() ? 1 : proposed.child_count(last);
    int32_t rank = -1;
    if (depth < accepted) {
      last = proposed.child(last, tokens[static_cast<size_t>(depth)]);
      rank = proposed.is_chain() ? 0 : proposed.rank(last);
    }
    const double right = rank == 0 ? 1 : 0;
    MeasuredShare own{record.acceptance, record.acceptance_weight};
    own.note(right, kAcceptanceMemory);
    record.acceptance = own.mean;
    record.acceptance_weight = own.weight;
    usual_.note(right, kAcceptanceMemory);
    chances_.note(depth, children, rank);
  }
  if (!proposed.empty() && sequence.running()) record.drafted_to = sequence.known_length();
}

void ModelDrafts::note_step(const StepResult::Drafting& drafting, double seconds) {
  trial_seconds_ = std::min(kTrialSecondsMax, trial_seconds_ + kTrialShare * seconds);
  cost_.observe(drafting);
  if (drafting.passes > 0) lessons_ = std::min(kLessons, lessons_ + 1);
  seconds_ += drafting.seconds;
}

}  // namespace headrace
