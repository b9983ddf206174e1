#include "engine/step_recorder.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace {
namespace {

// Whether every row of the plan draws a token: of a sequence its last known token's, and those of
// the tokens proposed behind it.
bool only_decodes(const StepPlan& plan) {
  return std::all_of(plan.work.begin(), plan.work.end(), [](const Work& work) {
    const bool one_row = work.rows == LogitRows::kLast || work.rows == LogitRows::kVerify;
    return work.count == 1 + work.proposed.size() && work.samples && one_row &&
           work.also_sample.empty();
  });
}

// Tokens whose keys and values are read by more rows of their sequence than one, each time but one.
int64_t tokens_read_again(const StepPlan& plan) {
  int64_t tokens = 0;
  for (const Work& work : plan.work) tokens += int64_t{work.count - 1} * (work.first + work.count);
  return tokens;
}

}  // namespace

int32_t StepRecorder::padded_rows(const StepPlan& plan, int64_t token_bytes) const {
  if (plan.work.empty() || !only_decodes(plan)) return 0;
  const int64_t again = tokens_read_again(plan);
  if (again > 0 &&
      (sources_.keeps_states || again > kReadAgain / std::max<int64_t>(1, token_bytes))) {
    return 0;
  }
  return graphs_.padded_rows(plan.token_count);
}

Result<StepGraphs::Recording> StepRecorder::record(const Sources& sources, Workspace& scratch,
                                                   RecordedSize size) {
  const int32_t rows = size.rows;
  const auto count = static_cast<size_t>(rows);
  ArenaPlaces places;
  const size_t of_states = sources.keeps_states ? count : 0;
  const size_t tasks = size.adapters ? padded_lora_tasks(count, sources.adapter_slots) : 0;
  const StepParts parts = StepParts::place(places, sources.attention,
                                           {.tokens = count,
                                            .logit_rows = count,
                                            .lora_tasks = tasks,
                                            .state_sequences = of_states,
                                            .state_saves = of_states});
  std::vector<std::vector<std::byte>> plans;
  for (const auto& part : parts.attention_plans) plans.emplace_back(part.count);
  const std::vector<std::span<std::byte>> to(plans.begin(), plans.end());
  StepInput input = StepInput::in(
      sources.arena, parts, plan_padding(sources.attention, sources.padding.decodes(rows), to));
  for (AttentionPlan& plan : input.attention_plans) plan.rows_meet = size.rows_meet;
  input.results = sources.results.rows();
  input.tops = sources.results.tops(rows);

  const StepStages& stages = sources.stages;
  const auto stream = sources.device.create_stream();
  OpContext op{sources.device, *stream, scratch, sources.mesh, sources.hooks};
  const Workspace::Mark mark(scratch);
  const TensorView hidden = stages.take_hidden(scratch, count);
  StepGraphs::Recording recording{.forward = nullptr, .sample = nullptr, .hidden = hidden};
  HR_RETURN_IF_ERROR(stream->begin_capture());
  stages.forward(op, input, hidden, stages.taps());
  HR_ASSIGN_OR_RETURN(recording.forward, stream->end_capture());
  if (!stages.samples()) return recording;
  HR_RETURN_IF_ERROR(stream->begin_capture());
  stages.sample(op, input, hidden);
  HR_ASSIGN_OR_RETURN(recording.sample, stream->end_capture());
  return recording;
}

}  // namespace headrace
