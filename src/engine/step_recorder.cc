#include "engine/step_recorder.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace {
namespace {

// Whether every sequence of the plan computes one token and draws from it.
bool only_decodes(const StepPlan& plan) {
  return std::all_of(plan.work.begin(), plan.work.end(), [](const Work& work) {
    return work.count == 1 && work.samples && work.rows == LogitRows::kLast &&
           work.also_sample.empty();
  });
}

}  // namespace

int32_t StepRecorder::padded_rows(const StepPlan& plan) const {
  if (plan.work.empty() || !only_decodes(plan)) return 0;
  return graphs_.padded_rows(static_cast<int32_t>(plan.work.size()));
}

Result<StepGraphs::Recording> StepRecorder::record(RecordedSize size) {
  const int32_t rows = size.rows;
  const auto count = static_cast<size_t>(rows);
  ArenaPlaces places;
  const size_t of_states = sources_.keeps_states ? count : 0;
  const size_t tasks = size.adapters ? padded_lora_tasks(count, sources_.adapter_slots) : 0;
  const StepParts parts = StepParts::place(places, sources_.attention,
                                           {.tokens = count,
                                            .logit_rows = count,
                                            .lora_tasks = tasks,
                                            .state_sequences = of_states,
                                            .state_saves = of_states});
  std::vector<std::vector<std::byte>> plans;
  for (const auto& part : parts.attention_plans) plans.emplace_back(part.count);
  const std::vector<std::span<std::byte>> to(plans.begin(), plans.end());
  StepInput input = StepInput::in(
      sources_.arena, parts, plan_padding(sources_.attention, sources_.padding.decodes(rows), to));
  input.results = sources_.results.rows();
  input.tops = sources_.results.tops(rows);

  const StepStages& stages = sources_.stages;
  const auto stream = sources_.device.create_stream();
  OpContext op{sources_.device, *stream, scratch_, sources_.mesh, sources_.hooks};
  const Workspace::Mark mark(scratch_);
  const TensorView hidden = stages.take_hidden(scratch_, count);
  StepGraphs::Recording recording;
  HR_RETURN_IF_ERROR(stream->begin_capture());
  stages.forward(op, input, hidden, stages.taps());
  HR_ASSIGN_OR_RETURN(recording.forward, stream->end_capture());
  HR_RETURN_IF_ERROR(stream->begin_capture());
  stages.sample(op, input, hidden);
  HR_ASSIGN_OR_RETURN(recording.sample, stream->end_capture());
  return recording;
}

}  // namespace headrace
