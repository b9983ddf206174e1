// What slots keep for penalties is what a recount of their tokens finds, whatever becomes of them.
#include "engine/penalty_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "engine/slot_table.h"
#include "engine/verification.h"

namespace headrace::penalty_counts_test {
namespace {

constexpr int32_t kVocabulary = 12;
constexpr int32_t kSlots = 5;

using Recount = std::map<TokenId, int32_t>;

Recount recounted(const SamplingParams& sampling, TokenSpan tokens, size_t prompt) {
  Recount counts;
  if (!penalises_tokens(sampling)) return counts;
  size_t first = prompt;
  if (sampling.penalty_window > 0) {
    const auto window = static_cast<size_t>(sampling.penalty_window);
    first = tokens.size() - std::min(window, tokens.size());
  }
  for (const TokenId token : tokens.subspan(first)) ++counts[token];
  return counts;
}

// No id twice, none that is not there.
void expect_counts(const PenaltyCounts& counts, const Recount& expected) {
  Recount seen;
  for (const TokenCount& entry : counts.entries()) {
    EXPECT_TRUE(seen.try_emplace(entry.token, entry.count).second) << entry.token;
  }
  EXPECT_EQ(seen, expected);
}

SamplingParams drawn_penalties(Rng& rng) {
  SamplingParams sampling;
  sampling.penalty_window = std::array{-1, 1, 2, 3, 7, 40, 1 << 30}[rng.below(7)];
  const uint64_t kind = rng.below(4);
  if (kind == 0) sampling.repetition_penalty = 1.5f;
  if (kind == 1) sampling.presence_penalty = -0.5f;
  if (kind == 2) sampling.frequency_penalty = 0.25f;
  return sampling;
}

// Sequences that join, get tokens, are preempted and join again in other slots with all that they
// have got.
class DrawnSequences {
 public:
  DrawnSequences(uint64_t seed, SlotTable& slots) : rng_(seed), slots_(slots) {
    for (int32_t slot = 0; slot < kSlots; ++slot) running_.push_back(begun());
    join_all();
  }

  // Each gets what it samples and, of four proposals, those that were right.
  void step() {
    std::vector<LogitRow> rows;
    StepResult result;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      Running& own = running_[static_cast<size_t>(slot)];
      StepResult::Row sampled{.sequence = own.sequence};
      const auto proposed = static_cast<int32_t>(rng_.below(5));
      bool right = true;
      for (int32_t ahead = 0; ahead <= proposed; ++ahead) {
        const TokenId drawn = token();
        // A row behind one that was not what was proposed is void.
        const TokenId before = ahead == 0 ? -1 : sampled.accepted[static_cast<size_t>(ahead) - 1];
        const TokenId guess = ahead == 0 || rng_.below(2) == 0 ? before : before + 1;
        right = right && guess == before;
        if (right) own.tokens.push_back(drawn);
        sampled.accepted.push_back(drawn);
        rows.push_back({.sequence = own.sequence,
                        .slot = SlotId(slot),
                        .samples = true,
                        .ahead = ahead,
                        .proposed = guess,
                        .behind = ahead - 1});
      }
      slots_.expect(SlotId(slot));
      result.rows.push_back(std::move(sampled));
    }
    AcceptanceRule as_sampled(-1);
    EXPECT_TRUE(cut_rejected(rows, as_sampled, result).empty());
    append_accepted(rows, result, slots_);
  }

  // The next take its place in another order, some of them begun anew.
  void preempt_all() {
    StepPlan plan;
    for (int32_t slot = 0; slot < kSlots; ++slot) plan.released.push_back({.slot = SlotId(slot)});
    slots_.update(plan);
    std::rotate(running_.begin(), running_.begin() + 1, running_.end());
    running_[rng_.below(kSlots)] = begun();
    join_all();
  }

  void expect_recounts() const {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const Running& own = running_[static_cast<size_t>(slot)];
      const Slot& kept = slots_[SlotId(slot)];
      ASSERT_EQ(kept.tokens, own.tokens);
      expect_counts(kept.counts,
                    recounted(own.request->sampling, own.tokens, own.request->prompt.size()));
    }
  }

 private:
  struct Running {
    SequenceId sequence;
    std::shared_ptr<Request> request;
    std::vector<TokenId> tokens;
  };
  TokenId token() { return static_cast<TokenId>(rng_.below(kVocabulary)); }
  Running begun() {
    Running next{.sequence = SequenceId(++last_sequence_),
                 .request = std::make_shared<Request>(),
                 .tokens = {}};
    next.request->sampling = drawn_penalties(rng_);
    next.request->prompt.resize(1 + rng_.below(20));
    for (TokenId& each : next.request->prompt) each = token();
    next.tokens = next.request->prompt;
    return next;
  }
  void join_all() {
    StepPlan plan;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const Running& own = running_[static_cast<size_t>(slot)];
      plan.admitted.push_back({.sequence = own.sequence,
                               .slot = SlotId(slot),
                               .request = own.request,
                               .tokens = own.tokens});
    }
    slots_.update(plan);
  }

  Rng rng_;
  SlotTable& slots_;
  std::vector<Running> running_;  // [slots]
  uint64_t last_sequence_ = 0;
};

TEST(PenaltyCounts, FollowTheTokensThatCameAndNoneThatWasRejected) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SlotTable slots(kSlots, 1, 4);
    DrawnSequences sequences(seed, slots);
    sequences.expect_recounts();
    for (uint64_t step = 1; step <= 40; ++step) {
      sequences.step();
      if (step % (3 + seed % 9) == 0) sequences.preempt_all();
      sequences.expect_recounts();
    }
  }
}

TEST(PenaltyCounts, AreNoneWhereAnotherCounts) {
  SlotTable slots(1, 1, 4, SlotTable::Counting::kNone);
  const auto request = std::make_shared<Request>();
  request->prompt = {1, 2};
  request->sampling.frequency_penalty = 1;
  request->sampling.penalty_window = 4;
  StepPlan plan;
  plan.admitted.push_back(
      {.sequence = SequenceId(1), .slot = SlotId(0), .request = request, .tokens = {1, 2, 2}});
  slots.update(plan);
  slots.append(SlotId(0), 5);
  EXPECT_TRUE(slots[SlotId(0)].counts.entries().empty());
}

}  // namespace
}  // namespace headrace::penalty_counts_test
