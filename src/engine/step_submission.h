// StepSubmission: a step whose forward stage has been submitted and whose sampling stage has not.
// Sampling may come late (a mask may have to be made first), so that the stages are two calls of
// the Runner; this is all that the second needs to know of the first.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "engine/step_graphs.h"
#include "engine/step_stages.h"
#include "tensor/tensor_view.h"
#include "tensor/workspace.h"

namespace headrace {

struct StepSubmission {
  Ticket ticket;
  StepInput input;
  RecordedSize size;                                 // no rows: the step is not padded
  const StepGraphs::Recording* recording = nullptr;  // nullptr: the step runs without a recording

  // From its forward stage on.
  std::optional<Workspace::Mark> scratch;  // of a step without a recording
  TensorView hidden;                       // [T, D]
};

}  // namespace headrace
