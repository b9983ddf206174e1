// What a step brought: tokens and log-probabilities become emissions, answers end, pages that are
// full may be shared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "sched/admission.h"
#include "sched/beam_reader.h"
#include "sched/page_supply.h"
#include "sched/proposer.h"
#include "sched/queue_policy.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"

namespace headrace {

class ResultReader {
 public:
  // All outlive this object.
  ResultReader(const SchedulerOptions& options, QueuePolicy& policy, BlockPool& pool,
               PageSupply& supply, AdmissionControl& admission, SequenceTable& table,
               Proposer& proposer)
      : options_(options),
        policy_(policy),
        pool_(pool),
        supply_(supply),
        admission_(admission),
        table_(table),
        proposer_(proposer),
        beams_(policy, admission, table) {}

  // When a step ended, and how long it took.
  struct Moment {
    double now_seconds = 0, step_seconds = 0;
  };
  // `sequences` are those of plan.work, in its order.
  std::vector<Emission> read(const StepPlan& plan, std::span<Sequence* const> sequences,
                             const StepResult& result, const Moment& moment);
  // Fills in the counters of tokens that were computed.
  void count(SchedulerStats& stats) const;

 private:
  void note_all_computed(const StepPlan& plan, std::span<Sequence* const> sequences,
                         const StepResult& result);
  void note_computed(const Work& work, Sequence& sequence, const StepResult::Row* verified);
  void charge(Sequence& sequence, int32_t prompt_tokens, int32_t output_tokens);
  void take_row(Sequence& sequence, const Work& work, const StepResult::Row* row,
                std::vector<Emission>& out);
  void take_sampled_row(Sequence& sequence, const StepResult::Row& row, Emission& emission);
  void take_prompt_logprobs(Sequence& sequence, const Work& work, const StepResult::Row& row,
                            Emission& emission);
  void end_prompt_only(const Work& work, const Sequence& leader, std::vector<Emission>& out);
  void fault(Sequence& sequence, std::vector<Emission>& out);
  FinishReason finish_after(const Sequence& sequence, TokenId token,
                            std::optional<TokenId>& stop_token) const;

  const SchedulerOptions& options_;
  QueuePolicy& policy_;
  BlockPool& pool_;
  PageSupply& supply_;
  AdmissionControl& admission_;
  SequenceTable& table_;
  Proposer& proposer_;
  BeamReader beams_;
  Moment moment_;  // of the step that is read
  uint64_t prompt_tokens_ = 0, generation_tokens_ = 0, recomputed_tokens_ = 0;
  uint64_t dropped_tokens_ = 0, ended_row_tokens_ = 0;
};

}  // namespace headrace
