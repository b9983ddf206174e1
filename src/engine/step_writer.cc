#include "engine/step_writer.h"

#include <algorithm>
#include <utility>

#include "engine/device_sampler.h"
#include "engine/padding_step.h"

namespace headrace {
namespace {

// Of a step that is not padded.
size_t task_count(std::span<const AdapterRows> adapters) {
  size_t tasks = 0;
  for (const AdapterRows& each : adapters) {
    tasks += (each.rows.size() + kLoraTaskRows - 1) / kLoraTaskRows;
  }
  return tasks;
}

}  // namespace

StepInput StepWriter::write(const ForwardBatch& batch, std::span<const SlotId> sequences,
                            const HeadRows& logits, size_t padded) {
  const ForwardBatch::KeptRows* const kept = batch.kept;
  // A recording knows where they begin, so that of padded steps they are as many.
  const size_t padded_states = states_.has_states() ? padded : 0;
  const size_t state_sequences = std::max(states_.sequence_count(), padded_states);
  const size_t state_saves = std::max(states_.save_count(), padded_states);
  const std::span<const AdapterRows> adapters = batch.adapters.rows;
  const size_t padded_tasks = adapters.empty() ? 0 : padded_lora_tasks(padded, adapter_slots_);
  const std::span<const TokenMark> marks =
      tells_marks_ ? slots_.marks() : std::span<const TokenMark>();
  if (kept != nullptr) kept_adapters_ = keep_adapter_rows(adapters, kept->rows);
  const StepParts parts =
      StepParts::place(arena_.places(), attention_,
                       {.tokens = std::max(batch.tokens.size(), padded),
                        .logit_rows = std::max(logits.rows.size(), padded),
                        .kept_rows = kept == nullptr ? 0 : kept->rows.size(),
                        .biases = logits.biases.size(),
                        .entries = slots_.entries().size(),
                        .marks = marks.size(),
                        .lora_tasks = padded > 0 ? padded_tasks : task_count(adapters),
                        .kept_lora_tasks = kept == nullptr ? 0 : task_count(kept_adapters_),
                        .state_sequences = state_sequences,
                        .state_saves = state_saves});
  arena_.fill(parts.tokens, batch.tokens);
  arena_.fill(parts.positions, batch.positions);
  std::vector<AttentionPlan> plans;
  const bool rows_meet = std::ranges::adjacent_find(sequences) != sequences.end();
  for (size_t group = 0; group < batch.groups.size(); ++group) {
    arena_.fill(parts.slots[group], batch.groups[group].slots, storage_.padding_slot());
    const std::span<std::byte> to = arena_.on_host(parts.attention_plans[group]);
    // Groups of one kind are cut alike: the work once, then the tables of each.
    const bool cut = batch.groups[group].table_offset > 0;
    plans.push_back(cut ? plan_beside(plans.back(),
                                      arena_.on_host(parts.attention_plans[group - 1]),
                                      slots_.group_stride(), to)
                        : plan_group(batch, sequences, group, to));
    plans.back().rows_meet = rows_meet;
  }
  fill_lora_tasks(adapters, arena_.on_host(parts.lora_tasks));
  if (kept != nullptr) fill_lora_tasks(kept_adapters_, arena_.on_host(parts.kept_lora_tasks));
  write_logit_rows(parts, logits);
  arena_.fill(parts.entries, slots_.entries());
  arena_.fill(parts.marks, marks);
  StepInput input = StepInput::in(arena_, parts, std::move(plans));
  input.states.rows_max = write_states(batch, parts);
  input.keeps_rows = kept != nullptr;
  if (input.keeps_rows && !kept->rows.empty()) {
    arena_.fill(parts.kept_rows, kept->rows);
    input.kept_plan = plan_kept(*kept, logits.rows, arena_.on_host(parts.kept_plan));
  }
  input.kept_plan.device = arena_.on_device(parts.kept_plan).data();
  return input;
}

StepInput StepWriter::write_padding(const PaddingStep& step) {
  const std::span<const AttentionSequence> sequences = step.sequences;
  const AttentionSequence& last = sequences.back();
  const auto count = static_cast<size_t>(last.row_first + last.row_count);
  const StepParts parts =
      StepParts::place(arena_.places(), attention_,
                       {.tokens = count,
                        .logit_rows = static_cast<size_t>(step.logit_rows),
                        .lora_tasks = step.adapters ? padded_lora_tasks(count, adapter_slots_) : 0,
                        .state_sequences = states_.has_states() ? sequences.size() : 0,
                        .state_saves = states_.has_states() ? sequences.size() : 0});
  arena_.fill(parts.tokens, std::span<const TokenId>());
  arena_.fill(parts.positions, std::span<const int32_t>());
  std::vector<std::span<std::byte>> to;
  for (size_t group = 0; group < attention_.size(); ++group) {
    arena_.fill(parts.slots[group], std::span<const int64_t>(), storage_.padding_slot());
    to.push_back(arena_.on_host(parts.attention_plans[group]));
  }
  fill_lora_tasks({}, arena_.on_host(parts.lora_tasks));
  write_logit_rows(parts, {});
  StepInput input = StepInput::in(arena_, parts, plan_padding(attention_, sequences, to));
  const std::span<DeviceStateSequence> of_states = arena_.on_host(parts.state_sequences);
  for (size_t i = 0; i < of_states.size(); ++i) {
    of_states[i] = states_.padding(sequences[i].row_first, sequences[i].row_count);
    input.states.rows_max = std::max(input.states.rows_max, sequences[i].row_count);
  }
  return input;
}

int32_t StepWriter::write_states(const ForwardBatch& batch, const StepParts& parts) {
  if (!states_.has_states()) return 1;
  states_.write(arena_.on_host(parts.state_sequences), arena_.on_host(parts.state_saves));
  int32_t most = 1;
  for (const AttentionSequence& sequence : batch.groups.front().sequences) {
    most = std::max(most, sequence.row_count);
  }
  return most;
}

void StepWriter::write_logit_rows(const StepParts& parts, const HeadRows& logits) {
  hidden_rows_.clear();
  for (const LogitRow& row : logits.rows) hidden_rows_.push_back(row.hidden_row);
  arena_.fill(parts.logit_rows, std::span<const int32_t>(hidden_rows_));
  arena_.fill(parts.sample_rows, logits.sample_rows, DeviceSampler::padding(slots_.padding_slot()));
  arena_.fill(parts.biases, logits.biases);
}

// Tiles read block tables where they are on the device.
AttentionPlan StepWriter::plan_group(const ForwardBatch& batch, std::span<const SlotId> sequences,
                                     size_t group, std::span<std::byte> to) {
  sequences_.assign(batch.groups[group].sequences.begin(), batch.groups[group].sequences.end());
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].block_table = slots_.block_table(sequences[i], static_cast<int32_t>(group));
  }
  return plan_attention(attention_[group], sequences_, to);
}

AttentionPlan StepWriter::plan_kept(const ForwardBatch::KeptRows& kept,
                                    std::span<const LogitRow> rows, std::span<std::byte> to) {
  const int32_t group = storage_.plan().layer_group[static_cast<size_t>(last_layer_)];
  sequences_.assign(kept.group.sequences.begin(), kept.group.sequences.end());
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].block_table = slots_.block_table(rows[i].slot, group);
  }
  return plan_attention(attention_[static_cast<size_t>(group)], sequences_, to);
}

}  // namespace headrace
