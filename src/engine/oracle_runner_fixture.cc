#include "engine/oracle_runner_fixture.h"

#include <thread>

namespace headrace {

OracleRunner::OracleRunner(const OracleModel& model, const SchedulerOptions& options,
                           std::shared_ptr<OracleControls> controls)
    : device_(model, options.groups, options.block_count, options.max_num_seqs, options.tiers),
      controls_(std::move(controls)) {}

Ticket OracleRunner::submit_forward(const StepPlan& plan) {
  steps_.push_back({device_.execute(plan), plan.token_count});
  return Ticket(++last_ticket_);
}

Result<StepResult> OracleRunner::wait(Ticket) {
  const int64_t micros = controls_->step_micros + controls_->token_micros * steps_.front().tokens;
  if (micros > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(micros));
  }
  while (controls_->hold) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  StepResult result = std::move(steps_.front().result);
  steps_.pop_front();
  if (controls_->fail_next_step.exchange(false)) return internal_error("the test failed this step");
  return result;
}

}  // namespace headrace
