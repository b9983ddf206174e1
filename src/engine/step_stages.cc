#include "engine/step_stages.h"

#include <algorithm>

#include "engine/step_scratch.h"
#include "ops/rows/row_gather.h"
#include "ops/sampling/spread_logits.h"

namespace headrace {

namespace {

// Bytes of an attention plan of so many rows. The plan of the largest step has 64 KB, which a step
// that only decodes must not upload.
size_t plan_bytes(AttentionPlanShape shape, size_t rows) {
  shape.rows_max = static_cast<int32_t>(rows);
  shape.sequences_max = std::min(shape.sequences_max, shape.rows_max);
  return static_cast<size_t>(attention_plan_bytes(shape));
}

}  // namespace

StepParts StepParts::place(ArenaPlaces& places, std::span<const AttentionPlanShape> attention,
                           const StepCounts& counts) {
  StepParts parts;
  parts.tokens = places.take<TokenId>(counts.tokens);
  parts.positions = places.take<int32_t>(counts.tokens);
  for (const AttentionPlanShape& shape : attention) {
    parts.slots.push_back(places.take<int64_t>(counts.tokens));
    parts.attention_plans.push_back(places.take<std::byte>(plan_bytes(shape, counts.tokens)));
  }
  parts.state_sequences = places.take<DeviceStateSequence>(counts.state_sequences);
  parts.state_saves = places.take<StateCopy>(counts.state_saves);
  parts.lora_tasks = places.take<LoraTask>(counts.lora_tasks);
  size_t kept_plan_bytes = 0;
  for (const AttentionPlanShape& shape : attention) {
    if (counts.kept_rows == 0) continue;
    kept_plan_bytes = std::max(kept_plan_bytes, plan_bytes(shape, counts.kept_rows));
  }
  parts.kept_rows = places.take<int32_t>(counts.kept_rows);
  parts.kept_plan = places.take<std::byte>(kept_plan_bytes);
  parts.kept_lora_tasks = places.take<LoraTask>(counts.kept_lora_tasks);
  parts.logit_rows = places.take<int32_t>(counts.logit_rows);
  parts.sample_rows = places.take<DeviceSampleRow>(counts.logit_rows);
  parts.biases = places.take<DeviceLogitBias>(counts.biases);
  parts.entries = places.take<BlockTableEntry>(counts.entries);
  parts.marks = places.take<TokenMark>(counts.marks);
  return parts;
}

StepInput StepInput::in(const StepArena& arena, const StepParts& parts,
                        std::vector<AttentionPlan> attention_plans) {
  StepInput input;
  input.tokens = arena.on_device(parts.tokens);
  input.positions = arena.on_device(parts.positions);
  input.attention_plans = std::move(attention_plans);
  for (size_t group = 0; group < parts.slots.size(); ++group) {
    input.slots.push_back(arena.on_device(parts.slots[group]));
    input.attention_plans[group].device = arena.on_device(parts.attention_plans[group]).data();
  }
  input.states = {.sequences = arena.on_device(parts.state_sequences).data(),
                  .saves = arena.on_device(parts.state_saves).data(),
                  .count = static_cast<int32_t>(parts.state_sequences.count),
                  .rows_max = 1};
  input.lora_tasks = arena.on_device(parts.lora_tasks);
  input.kept_lora_tasks = arena.on_device(parts.kept_lora_tasks);
  input.kept_rows = arena.on_device(parts.kept_rows);
  input.logit_rows = arena.on_device(parts.logit_rows);
  input.sample_rows = arena.on_device(parts.sample_rows).data();
  input.biases = arena.on_device(parts.biases).data();
  input.entries = arena.on_device(parts.entries);
  input.marks = arena.on_device(parts.marks);
  return input;
}

TensorView StepStages::take_hidden(Workspace& workspace, size_t rows) const {
  ArenaPlaces places;
  const TensorPart hidden = place_hidden(places, sources_.model, static_cast<int64_t>(rows));
  return hidden.in(workspace.take(places.used()));
}

void StepStages::forward(OpContext& context, const StepInput& input, TensorView hidden,
                         LayerTaps taps) const {
  std::vector<ForwardBatch::Group> groups;
  for (size_t group = 0; group < input.slots.size(); ++group) {
    groups.push_back(
        {.slots = input.slots[group], .sequences = {}, .plan = &input.attention_plans[group]});
  }
  const ForwardBatch::KeptRows kept{
      .rows = input.kept_rows, .group = {.slots = {}, .sequences = {}, .plan = &input.kept_plan}};
  const Model& model = sources_.model;
  const auto first = static_cast<size_t>(sources_.layer_first);
  const auto count = static_cast<size_t>(model.spec().layer_count);
  const std::span<const int32_t> layer_group(sources_.storage.plan().layer_group);
  ForwardBatch batch{.tokens = input.tokens,
                     .positions = input.positions,
                     .groups = groups,
                     .layer_group = layer_group.subspan(first, count),
                     .kept = input.keeps_rows ? &kept : nullptr,
                     .states = sources_.states.view_on_device(input.states),
                     .adapters = {.slots = sources_.adapters,
                                  .tasks = input.lora_tasks,
                                  .kept_tasks = input.kept_lora_tasks}};
  if (sources_.features.data != nullptr) {
    batch.features = sources_.features.row_range(0, std::ssize(input.tokens));
  }
  if (layers().first == 0) model.embed(context, batch, hidden);
  model.layers(context, batch, layers(), sources_.storage.layers().subspan(first, count), hidden,
               taps);
}

void StepStages::sample(OpContext& context, const StepInput& input, TensorView hidden) const {
  score(context, input, hidden, Outcome::kTokens);
}

void StepStages::rehearse_sample(OpContext& context, const StepInput& input,
                                 TensorView hidden) const {
  score(context, input, hidden, Outcome::kNone);
}

void StepStages::score(OpContext& context, const StepInput& input, TensorView hidden,
                       Outcome outcome) const {
  const auto rows = static_cast<int64_t>(input.logit_rows.size());
  for (int64_t first = 0; first < rows; first += kDeviceLogitRowsMax) {
    score_rows(context, input, hidden, first, std::min<int64_t>(kDeviceLogitRowsMax, rows - first),
               outcome);
  }
}

void StepStages::score_rows(OpContext& context, const StepInput& input, TensorView hidden,
                            int64_t first, int64_t count, Outcome outcome) const {
  Workspace::Mark mark(context.workspace);
  const Model& model = sources_.model;
  const int32_t own = model.spec().logit_count();
  const int32_t vocabulary = sampled_tokens(model, sources_.vocabulary);
  ArenaPlaces places;
  const HeadScratch scratch = HeadScratch::on_gpu(places, model, count, vocabulary);
  std::byte* const memory = context.workspace.take(places.used());
  const TensorView gathered = scratch.gathered.in(memory);
  const TensorView logits(scratch.logits.in(memory), DType::kF32, Shape{count, own},
                          device_logit_row_bytes(own));
  row_gather(context, {.x = hidden,
                       .rows = input.logit_rows.subspan(static_cast<size_t>(first),
                                                        static_cast<size_t>(count)),
                       .out = gathered});
  model.head(context, gathered, logits);
  if (outcome == Outcome::kNone) return;
  TensorView sampled = logits;
  if (own < vocabulary) {
    sampled = TensorView(scratch.spread.in(memory), DType::kF32, Shape{count, vocabulary},
                         device_logit_row_bytes(vocabulary));
    spread_logits(context, {.logits = logits, .ids = sources_.logit_ids, .all = sampled});
  }
  device_sample(context, {.logits = sampled,
                          .rows = input.sample_rows + first,
                          .biases = input.biases,
                          .masks = sources_.masks.on_device(),
                          .token_counts = sources_.slots.token_counts(),
                          .last_tokens = sources_.slots.last_tokens(),
                          .results = input.results + first,
                          .tops = input.tops});
}

}  // namespace headrace
