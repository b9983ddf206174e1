// PageMoves: the pages of steps that change tiers (engine/kv_tiers.h). They go on a stream of their
// own, beside the step before. What is stored was written by steps that have ended, and must be out
// before this step writes, or, ahead of need, before the next one does; what is loaded is read by
// the next step, not by this one.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/kv_storage.h"
#include "sched/step_plan.h"
#include "tensor/device.h"

namespace headrace {

// Used by the engine thread.
class PageMoves {
 public:
  // Both outlive this. The owner calls synchronize() before memory of the storage goes.
  PageMoves(Device& device, KvStorage& storage) : device_(device), storage_(storage) {}

  // Starts the moves of `plan`, before anything else of its step on the step's stream.
  void start(const StepPlan& plan, Stream& step_stream);
  // Until all moves have ended.
  Status synchronize() { return stream_ == nullptr ? ok_status() : stream_->synchronize(); }
  // Errors seen so far, without waiting.
  Status status() { return stream_ == nullptr ? ok_status() : stream_->status(); }

 private:
  Device& device_;
  KvStorage& storage_;
  std::unique_ptr<Stream> stream_;  // made when the first page moves
  // The end of what the step before loads and stores ahead of need; nullptr: nothing.
  std::unique_ptr<Event> moved_;
};

}  // namespace headrace
