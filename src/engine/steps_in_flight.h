// StepsInFlight: the steps between submit_forward() and wait(), and when each of them began and
// ended on the device's clock.
#pragma once

#include <memory>
#include <vector>

#include "base/adapter.h"
#include "base/ids.h"
#include "engine/batch_builder.h"
#include "engine/model_runner.h"
#include "engine/step_timing.h"
#include "ops/sampling/device_sample.h"
#include "tensor/device.h"

namespace headrace {

struct StepInFlight {
  std::vector<LogitRow> logit_rows;
  std::vector<DeviceSampleRow> sample_rows;              // of each of these
  std::vector<bool> dead_ends;                           // of its masks: they allow nothing
  std::vector<std::shared_ptr<const Adapter>> adapters;  // that it reads
  std::unique_ptr<Event> done;                           // the results are on the host
  bool submitted = false;                                // false: another step may take this place
  RunnerTiming timing;
};

// Points of a step on the device's clock.
struct StepMarks {
  std::unique_ptr<Event> begin;  // its input has come, kernels start
  std::unique_ptr<Event> end;    // its last kernel has ended
};

class StepsInFlight {
 public:
  // Of at most so many steps. One more begins and ends: the gap before a step begins where the one
  // before it ended.
  explicit StepsInFlight(int count)
      : steps_(static_cast<size_t>(count)), marks_(static_cast<size_t>(count) + 1) {}

  // Of the steps' stream. Once, before all others.
  void create_events(Stream& stream) {
    for (StepInFlight& step : steps_) step.done = stream.create_timer();
    for (StepMarks& marks : marks_) {
      marks = {stream.create_timer(), stream.create_timer()};
      stream.record(*marks.end);
    }
  }

  // Steps that are in flight together have different places.
  int place_of(Ticket ticket) const { return static_cast<int>(ticket.value % steps_.size()); }
  StepInFlight& operator[](Ticket ticket) { return steps_[static_cast<size_t>(place_of(ticket))]; }
  const StepMarks& marks(Ticket ticket) const { return marks_[ticket.value % marks_.size()]; }

  // REQUIRES: the step and the one before it have ended
  RunnerTiming timing(Ticket ticket) const {
    RunnerTiming timing = steps_[static_cast<size_t>(place_of(ticket))].timing;
    timing.device_seconds = marks(ticket).end->seconds_since(*marks(ticket).begin);
    timing.gap_seconds = marks(ticket).begin->seconds_since(*marks(Ticket(ticket.value - 1)).end);
    return timing;
  }

 private:
  std::vector<StepInFlight> steps_;
  std::vector<StepMarks> marks_;
};

}  // namespace headrace
