#include "sched/model_drafts.h"

#include <algorithm>

namespace headrace {

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
  const int32_t depth = depth_for(budget.load);
  for (const Candidate& candidate : drafting_) {
    DraftEntry& entry = *candidate.entry;
    ProposalRecord& record = entry.sequence->proposals;
    int32_t tokens = depth;
    if (record.trial_steps > 0) tokens = std::max(tokens, kTrialTokens), --record.trial_steps;
    if (tokens == 0) {
      stop(*entry.sequence);
      continue;
    }
    tokens = std::min({tokens, candidate.most, tokens_left});
    entry.drafted = tokens;
    entry.count += tokens;
    budget.take(*entry.sequence, entry.sequence->extent.most + 1, tokens);
    tokens_left -= tokens;
  }
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
  const Depth of_all = best_depth(load, crowd_);
  const size_t sharers = crowd_.size();
  std::erase_if(crowd_, [&](const Candidate& candidate) {
    const Sequence& sequence = *candidate.entry->sequence;
    return !sequence.proposals.begun && !pays(sequence, of_all, sharers);
  });
  of_crowd_ = best_depth(load, crowd_);
  if (of_crowd_.tokens == 0) return;
  for (const Candidate& candidate : crowd_) candidate.entry->sequence->proposals.pause = 0;
}

int32_t ModelDrafts::depth_for(const StepLoad& load) const {
  if (!weighs()) return options_.proposals.tokens_max;
  if (learns()) return 1 + lessons_ % options_.proposals.tokens_max;
  const int32_t alone = best_depth(load, drafting_).tokens;
  return alone > 0 ? alone : of_crowd_.tokens;
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
  const Candidate alone{.entry = &entry, .most = options_.proposals.tokens_max};
  if (pays(sequence, best_depth(load, {&alone, 1}), 1)) return true;
  const double trial =
      catch_up_seconds(sequence) + kTrialSteps * cost_.seconds(kTrialTokens, kTrialTokens);
  if (trial > trial_seconds_) return false;
  trial_seconds_ -= trial;
  record.trial_steps = kTrialSteps;
  return true;
}

// Whether its share of what `sharers` save together by drafting to a depth brings in what it costs
// to catch up, before its answer ends.
bool ModelDrafts::pays(const Sequence& sequence, const Depth& depth, size_t sharers) const {
  if (depth.tokens == 0 || sharers == 0) return false;
  const auto count = static_cast<double>(sharers);
  const int32_t left = std::min(kExpectedTokens, sequence.length_max() - sequence.known_length());
  const double steps = left / (1 + depth.gain / count);
  return steps * depth.saved_seconds / count >= catch_up_seconds(sequence);
}

// A prefix that was found may hold keys of the model alone: it counts as not drafted.
double ModelDrafts::catch_up_seconds(const Sequence& sequence) const {
  return cost_.per_row() * (sequence.known_length() - sequence.proposals.drafted_to);
}

// A step of D tokens that takes S seconds is worth a longer one, by s, for g tokens more where
// g / D > s / S: the depth of the greatest (D + g) / (S + s).
ModelDrafts::Depth ModelDrafts::best_depth(const StepLoad& load,
                                           std::span<const Candidate> candidates) const {
  if (candidates.empty()) return {};
  const double seconds = pace_.cost().seconds(load);
  const double tokens = std::max(1.0, load.decodes);
  StepLoad with = load;
  std::vector<double> chances(candidates.size(), 1);
  double gain = 0, rows = 0, best_rate = tokens / seconds;
  Depth best;
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
    best = {.tokens = depth, .saved_seconds = seconds * gain / tokens - longer, .gain = gain};
  }
  return best;
}

void ModelDrafts::Acceptance::note(double right) {
  weight = std::min(weight + 1, kAcceptanceMemory);
  mean += (right - mean) / weight;
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

void ModelDrafts::note(Sequence& sequence, int32_t proposed, int32_t accepted) {
  ProposalRecord& record = sequence.proposals;
  for (int32_t i = 0; i < std::min(proposed, accepted + 1); ++i) {
    const double right = i < accepted ? 1.0 : 0.0;
    Acceptance own{record.acceptance, record.acceptance_weight};
    own.note(right);
    record.acceptance = own.mean;
    record.acceptance_weight = own.weight;
    usual_.note(right);
  }
  if (proposed > 0 && sequence.running()) record.drafted_to = sequence.known_length();
}

void ModelDrafts::note_step(const StepResult::Drafting& drafting, double seconds) {
  trial_seconds_ = std::min(kTrialSecondsMax, trial_seconds_ + kTrialShare * seconds);
  cost_.observe(drafting);
  if (drafting.passes > 0) lessons_ = std::min(kLessons, lessons_ + 1);
  seconds_ += drafting.seconds;
}

}  // namespace headrace
