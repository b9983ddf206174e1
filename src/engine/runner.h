// Runner: computes steps. The model runner works on a device (CPU: model_runner.cc; GPU:
// device_runner.cc); the oracle runner (tests) on hashes. Used by the engine thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "engine/step_timing.h"
#include "sched/step_plan.h"

namespace headrace {

class Runner {
 public:
  virtual ~Runner() = default;
  // Starts the forward pass; the plan must live until wait() returned. Plans come in order.
  virtual Ticket submit_forward(const StepPlan& plan) = 0;
  // Whether submit_sample() of the step can only come behind wait() of the steps before it: what
  // its rows may have follows from the tokens sampled there.
  virtual bool sample_needs_results(Ticket) { return false; }
  // Starts sampling of a submitted step.
  virtual void submit_sample(Ticket ticket) = 0;
  // Blocks until the step is done. Tickets are waited for in order. An error is sticky: the device
  // is lost, the engine stops being ready.
  virtual Result<StepResult> wait(Ticket ticket) = 0;

  // Whether it keeps to the forms of answers (Request::constraint).
  virtual bool takes_constraints() const { return false; }
  // Whether it has the samplers that rare_sampler() names (base/sampling_params.h).
  virtual bool takes_rare_samplers() const { return false; }
  // Whether it computes with adapters (Request::adapter_weights), which were loaded for its model.
  virtual bool takes_adapters() const { return false; }

  // For saving and restoring the prefix cache while no step is in flight. 0: the runner has no
  // pages to copy.
  virtual int64_t page_bytes() const { return 0; }
  virtual Status read_page(TierPage, std::span<std::byte>) { return unsupported("no pages"); }
  virtual Status write_page(std::span<const std::byte>, BlockId) { return unsupported("no pages"); }
  // No request is left: what it keeps of those that were goes. REQUIRES: no step is in flight
  virtual void forget_requests() {}
  // Does something worth doing while there is nothing to compute, for as long as a short step
  // takes; false: nothing is left to do. REQUIRES: no step is in flight
  virtual bool idle_work() { return false; }
  // The timing of the step that wait() returned last.
  virtual RunnerTiming timing() const { return {}; }
};

}  // namespace headrace
