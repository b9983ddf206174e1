// OracleRunner: the oracle device of src/sim as a Runner, for tests of engine and server without
// a model. Steps can be slowed down, held, or made to fail.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "engine/runner.h"
#include "sched/scheduler.h"
#include "sim/oracle_device.h"

namespace headrace {

// Shared with the test that steers the runner. Any thread.
struct OracleControls {
  std::atomic<int64_t> step_micros{0};      // each step takes so long
  std::atomic<int64_t> token_micros{0};     // and each token that it computes
  std::atomic<bool> hold{false};            // steps do not end while set
  std::atomic<bool> fail_next_step{false};  // the next step ends with an error
};

class OracleRunner final : public Runner {
 public:
  // The scheduler options that the engine gets: groups, block_count, max_num_seqs are read.
  OracleRunner(const OracleModel& model, const SchedulerOptions& options,
               std::shared_ptr<OracleControls> controls = std::make_shared<OracleControls>());

  Ticket submit_forward(const StepPlan& plan) override;
  void submit_sample(Ticket) override {}
  Result<StepResult> wait(Ticket ticket) override;

  // Before the engine starts.
  OracleDevice& device() { return device_; }

 private:
  OracleDevice device_;
  std::shared_ptr<OracleControls> controls_;
  struct Step {
    StepResult result;
    int32_t tokens = 0;
  };
  std::deque<Step> steps_;
  uint64_t last_ticket_ = 0;
};

}  // namespace headrace
