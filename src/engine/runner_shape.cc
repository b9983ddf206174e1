#include "engine/runner_shape.h"

#include <algorithm>

#include "engine/device_sampler.h"
#include "engine/state_storage.h"
#include "engine/step_scratch.h"
#include "engine/token_masks.h"
#include "kv/kv_demand.h"

namespace headrace {
namespace {

// Log-probabilities that results hold without growing: the 20 of the API for every row.
constexpr int64_t kTopsPlanned = 20;
// Logit biases of every slot that a step's arena holds without growing: the 300 of OpenAI's API.
constexpr size_t kBiasesPlanned = 300;
// Of a sequence in a step (PageSupply::plan_saves).
constexpr size_t kSavesOfSequence = 2;

// What the model keeps in pages of a kind's groups, which are all cut alike. Of those in which it
// keeps nothing a plan is made, as of one head, which no kernel reads.
LayerKv kept_in(const KvPlan& plan, size_t group, const ModelSpec& spec, int32_t layer_first) {
  const auto in_kind = [&](const KvLayerKind& kind, int32_t of) {
    return kind.group_first <= of && of < kind.group_end();
  };
  const auto kind = std::ranges::find_if(plan.kinds, [&](const KvLayerKind& each) {
    return in_kind(each, static_cast<int32_t>(group));
  });
  for (int32_t own = 0; own < spec.layer_count && kind != plan.kinds.end(); ++own) {
    const LayerKv& kv = spec.kv[static_cast<size_t>(own)];
    const auto layer = static_cast<size_t>(layer_first + own);
    if (kv.kv_heads > 0 && in_kind(*kind, plan.layer_group[layer])) return kv;
  }
  return {.kv_heads = 1, .k_dim = 64, .v_dim = 64};
}

std::vector<AttentionPlanShape> attention_shapes(const Device& device, const ModelSpec& spec,
                                                 int32_t layer_first, const KvPlan& plan,
                                                 const ModelRunnerOptions& options) {
  const bool lists_rows =
      std::ranges::any_of(spec.kv, [](const LayerKv& kv) { return kv.index_dim > 0; });
  std::vector<AttentionPlanShape> shapes;
  for (size_t group = 0; group < plan.groups.size(); ++group) {
    const LayerKv kv = kept_in(plan, group, spec, layer_first);
    shapes.push_back({.query_heads = std::max(spec.query_heads, kv.kv_heads),
                      .kv_heads = kv.kv_heads,
                      .head_dim = kv.k_dim,
                      .block_tokens = plan.block_tokens,
                      .window = kv.window,
                      .chunk = kv.chunk,
                      .sm_count = device.traits().sm_count,
                      .rows_max = options.max_num_batched_tokens,
                      .sequences_max = options.max_num_seqs,
                      .batch_invariant = device.traits().batch_invariant,
                      .split_prompts = options.split_prompts,
                      .latents = kv.v_aliases_k,
                      .lists_rows = lists_rows,
                      .kv_length_max = options.max_model_len});
  }
  return shapes;
}

int32_t adapter_slot_count(const ModelRunnerOptions& options) {
  return options.adapter_slots == nullptr ? 0 : options.adapter_slots->sizes().count;
}

// Every slot may get a new sequence of the greatest length. Penalties count the tokens of a prompt
// of that length, beside those of a step.
StepCounts planned_step(const ModelSpec& spec, const KvPlan& plan,
                        const ModelRunnerOptions& options) {
  const auto tokens = static_cast<size_t>(options.max_num_batched_tokens);
  const auto slots = static_cast<size_t>(options.max_num_seqs);
  const size_t states = state_entry_bytes(spec) > 0 ? slots : 0;
  const int32_t adapters = adapter_slot_count(options);
  return {.tokens = tokens,
          .logit_rows = tokens + slots,
          .kept_rows = slots,
          .biases = kBiasesPlanned * slots,
          .entries = slots * static_cast<size_t>(peak_pages(plan.groups, options.max_model_len,
                                                            options.max_num_batched_tokens)),
          .marks = static_cast<size_t>(options.max_model_len) + tokens,
          .lora_tasks = padded_lora_tasks(tokens, adapters),
          .kept_lora_tasks = padded_lora_tasks(slots, adapters),
          .state_sequences = states,
          .state_saves = kSavesOfSequence * states};
}

int64_t count_arena(const RunnerShape& shape) {
  const auto parts_max = 20 + 2 * static_cast<int64_t>(shape.attention.size());
  ArenaPlaces places;
  StepParts::place(places, shape.attention, shape.step);
  return places.bytes_for(parts_max);
}

// The scratch memory of a step of up to `tokens` tokens.
int64_t count_workspace(const Model& model, const RunnerShape& shape,
                        const ModelRunnerOptions& options, int32_t tokens) {
  const int32_t vocabulary = sampled_tokens(model, shape.slots.vocab_size);
  const auto rows = static_cast<int32_t>(
      std::min<int64_t>(kDeviceLogitRowsMax, tokens + int64_t{options.max_num_seqs}));
  int64_t partial = 0;  // of attention's results
  for (const AttentionPlanShape& attention : shape.attention) {
    partial = std::max(partial, attention_partial_bytes(attention));
  }
  ArenaPlaces places;
  place_hidden(places, model, tokens);
  HeadScratch::on_gpu(places, model, rows, vocabulary);
  places.take<std::byte>(static_cast<size_t>(partial));
  places.take<std::byte>(static_cast<size_t>(
      model.workspace_bytes(tokens, rows, options.max_model_len, /*thread_count=*/0)));
  return places.bytes_for(kScratchPartsMax);
}

}  // namespace

RunnerShape RunnerShape::plan(const Device& device, const Model& model, const KvPlan& plan,
                              const ModelRunnerOptions& options, Drafting drafting) {
  RunnerShape shape;
  shape.attention = attention_shapes(device, model.spec(), drafting.layer_first, plan, options);
  shape.slots = {.slot_count = options.max_num_seqs,
                 .group_count = static_cast<int32_t>(plan.groups.size()),
                 .blocks_max = pages_for(options.max_model_len, plan.block_tokens),
                 .vocab_size = sampled_tokens(model, drafting.vocabulary)};
  shape.step = planned_step(model.spec(), plan, options);
  shape.arena_bytes = count_arena(shape);
  shape.workspace_bytes = count_workspace(model, shape, options, options.max_num_batched_tokens);
  shape.graph_rows_max = recorded_rows_max(options);
  if (shape.graph_rows_max > 0) {
    shape.graph_workspace_bytes = count_workspace(model, shape, options, shape.graph_rows_max);
  }
  shape.result_rows = static_cast<int64_t>(shape.step.logit_rows);
  shape.state_bytes =
      StateStorage::bytes(device, model.spec(), options.max_num_seqs, options.state_checkpoints);
  shape.adapter_slots = adapter_slot_count(options);
  shape.mask_count = options.max_num_seqs;
  shape.result_tops = kTopsPlanned * shape.result_rows;  // prompt tokens may be scored too
  return shape;
}

int64_t RunnerShape::device_bytes() const {
  ArenaPlaces places;
  for (const int64_t bytes : {workspace_bytes, graph_workspace_bytes, arena_bytes, state_bytes}) {
    places.take<std::byte>(static_cast<size_t>(bytes));
  }
  DeviceSlotParts::place(places, slots);
  SampleResultParts::place(places, result_rows, result_tops);
  places.take<std::byte>(static_cast<size_t>(TokenMasks::bytes(mask_count, slots.vocab_size)));
  return places.part_bytes();
}

int32_t recorded_rows_max(const ModelRunnerOptions& options) {
  if (!options.graphs) return 0;
  return std::min(
      {options.recorded_rows_max, options.max_num_seqs, options.max_num_batched_tokens});
}

}  // namespace headrace
