#include "engine/device_draft_pass.h"

#include <algorithm>
#include <utility>

#include "engine/drafter.h"
#include "engine/model_drafter.h"
#include "engine/step_graphs.h"
#include "ops/sampling/slot_state.h"

namespace headrace {
namespace {

// A pass has one row of logits a sequence.
ModelRunnerOptions pass_options(const ModelRunnerOptions& options) {
  ModelRunnerOptions of_pass = options;
  of_pass.max_num_batched_tokens = draft_rows_max(options);
  of_pass.adapter_slots = nullptr;
  return of_pass;
}

RunnerShape pass_shape(const Device& device, const Model& model, const KvPlan& plan,
                       const ModelRunnerOptions& options) {
  return RunnerShape::plan(
      device, *options.draft, plan, pass_options(options),
      {.layer_first = model.spec().layer_count, .vocabulary = model.spec().vocab_size});
}

Shape row_shape(const ModelRunnerOptions& options) {
  return {draft_rows_max(options), options.draft->spec().hidden_size};
}

int64_t row_bytes_of(const ModelRunnerOptions& options) {
  return *tensor_bytes(options.draft->activation_dtype(), row_shape(options));
}

// Of a draft that has logits of fewer tokens than its model, and not of the first ones.
std::span<const TokenId> own_ids(const ModelRunnerOptions& options) {
  return options.draft_head ? std::span<const TokenId>(options.draft_head->tokens)
                            : std::span<const TokenId>();
}

TensorView rows_in(const Buffer& memory, const ModelRunnerOptions& options) {
  if (memory.size() == 0) return {};
  return {memory.data(), options.draft->activation_dtype(), row_shape(options)};
}

}  // namespace

int64_t DeviceDraftPass::bytes(const Device& device, const Model& model, const KvPlan& plan,
                               const ModelRunnerOptions& options) {
  const RunnerShape shape = pass_shape(device, model, plan, options);
  ArenaPlaces places;
  for (const int64_t bytes :
       {shape.workspace_bytes, shape.graph_workspace_bytes, shape.arena_bytes}) {
    places.take<std::byte>(static_cast<size_t>(bytes));
  }
  SampleResultParts::place(places, options.max_num_seqs, 0);
  places.take<TokenId>(own_ids(options).size());
  if (options.draft_head) {
    places.take<std::byte>(static_cast<size_t>(2 * row_bytes_of(options)));
    places.take<std::byte>(static_cast<size_t>(DraftFeatures::bytes(
        {model, options.draft, *options.draft_head}, options.max_num_batched_tokens)));
  }
  return places.part_bytes();
}

Result<std::unique_ptr<DraftPass>> DeviceDraftPass::create(const Sources& sources) {
  Device& device = sources.device;
  const ModelRunnerOptions& options = sources.options;
  RunnerShape shape = pass_shape(device, sources.model, sources.storage.plan(), options);
  if (sources.padding == nullptr) shape.graph_rows_max = 0;
  HR_ASSIGN_OR_RETURN(StepArena arena,
                      StepArena::create(device, shape.arena_bytes, kDeviceStepsInFlight));
  HR_ASSIGN_OR_RETURN(SampleResults results,
                      SampleResults::create(device, /*steps=*/1, options.max_num_seqs, /*tops=*/0));
  HR_ASSIGN_OR_RETURN(StateStorage states,
                      StateStorage::create(device, options.draft->spec(), options.max_num_seqs, 0));
  Memory memory{.arena = std::move(arena),
                .results = std::move(results),
                .states = std::move(states),
                .workspace = {},
                .recorded_workspace = {},
                .hidden = {},
                .features = {},
                .logit_ids = {}};
  HR_ASSIGN_OR_RETURN(memory.workspace, device.allocate(shape.workspace_bytes));
  if (shape.graph_rows_max > 0) {
    HR_ASSIGN_OR_RETURN(memory.recorded_workspace, device.allocate(shape.graph_workspace_bytes));
  }
  if (options.draft_head) {
    HR_ASSIGN_OR_RETURN(memory.hidden, device.allocate(row_bytes_of(options)));
    HR_ASSIGN_OR_RETURN(memory.features, device.allocate(row_bytes_of(options)));
  }
  if (const std::span<const TokenId> ids = own_ids(options); !ids.empty()) {
    const auto bytes = static_cast<int64_t>(ids.size_bytes());
    HR_ASSIGN_OR_RETURN(memory.logit_ids, device.allocate(bytes));
    sources.stream.copy_in(memory.logit_ids.data(), std::as_bytes(ids).data(), bytes);
    HR_RETURN_IF_ERROR(sources.stream.synchronize());
  }
  return std::unique_ptr<DraftPass>(
      new DeviceDraftPass(sources, std::move(shape), std::move(memory)));
}

DeviceDraftPass::DeviceDraftPass(const Sources& sources, RunnerShape shape, Memory memory)
    : sources_(sources),
      shape_(std::move(shape)),
      arena_(std::move(memory.arena)),
      results_(std::move(memory.results)),
      states_(std::move(memory.states)),
      workspace_(std::move(memory.workspace)),
      recorded_workspace_(std::move(memory.recorded_workspace)),
      hidden_memory_(std::move(memory.hidden)),
      feature_memory_(std::move(memory.features)),
      logit_ids_(std::move(memory.logit_ids)),
      hidden_(rows_in(hidden_memory_, sources.options)),
      features_(rows_in(feature_memory_, sources.options)),
      tap_{.layer = sources.options.draft->spec().layer_count - 1, .hidden = hidden_},
      stages_({.model = *sources.options.draft,
               .storage = sources.storage,
               .states = states_,
               .slots = sources.slots,
               .masks = sources.masks,
               .layer_first = sources.model.spec().layer_count,
               .vocabulary = sources.model.spec().vocab_size,
               .logit_ids = reinterpret_cast<const TokenId*>(logit_ids_.data()),
               .features = features_},
              sources.options.draft_head ? LayerTaps(&tap_, 1) : LayerTaps()),
      builder_(sources.storage.plan(), draft_layers(sources.model, sources.options),
               /*keeps_rows=*/false),
      sampler_(sources.options.end_ids, sources.model.spec().vocab_size,
               sources.options.max_num_seqs),
      writer_(arena_, {.attention = shape_.attention,
                       .storage = sources.storage,
                       .states = states_,
                       .slots = sources.slots,
                       .adapter_slots = 0,
                       .last_layer = draft_layers(sources.model, sources.options).last - 1,
                       .marks = false}),
      began_(sources.stream.create_timer()),
      ended_(sources.stream.create_timer()),
      sizes_(StepGraphs::sizes_up_to(shape_.graph_rows_max)) {
  if (sources.features != nullptr) builder_.place_too(sources.features->layers());
}

std::span<const SampleResult> DeviceDraftPass::run(std::span<const DraftRun> runs,
                                                   std::span<const LogitRow> rows,
                                                   const SlotTable& slots) {
  const bool decodes =
      rows.size() == runs.size() &&
      std::ranges::all_of(runs, [](const DraftRun& run) { return run.tokens.tokens.size() == 1; });
  const auto size = std::ranges::lower_bound(sizes_, static_cast<int32_t>(runs.size()));
  const int32_t padded = decodes && size != sizes_.end() ? *size : 0;
  sampler_.build(rows, slots, sample_rows_);
  chosen_.assign(rows.size(), SampleResult{.fault = true});
  biases_ = sampler_.biases();
  if (biases_.size() > shape_.step.biases) {
    // More than was planned: proposals do without, as the step that verifies has them all.
    biases_ = {};
    for (DeviceSampleRow& row : sample_rows_) row.bias_count = 0;
  }
  const StepInput input = write(runs, rows, slots, static_cast<size_t>(padded));
  if (sources_.features != nullptr) bring_features(runs, input);
  start(input, padded);
  wait_for(rows.size());
  return chosen_;
}

// What changes in block tables the step writes again, and what penalties count it alone tells.
StepInput DeviceDraftPass::write(std::span<const DraftRun> runs, std::span<const LogitRow> rows,
                                 const SlotTable& slots, size_t padded) {
  runs_.clear();
  for (const DraftRun& run : runs) {
    CHECK_MSG(run.tokens.paths.empty(), "attention on a GPU takes no trees");
    runs_.push_back(run.tokens);
  }
  const ForwardBatch batch = builder_.build(runs_, slots);
  for (DeviceSampleRow& row : sample_rows_) {
    row.logprobs = row.temperature == 0 ? 0 : -1;
    row.top_first = 0;
  }
  arena_.start_step();
  StepInput input =
      writer_.write(batch, builder_.sequence_slots(),
                    {.rows = rows, .sample_rows = sample_rows_, .biases = biases_}, padded);
  CHECK(results_.reserve(sources_.stream, 0, static_cast<int64_t>(std::max(rows.size(), padded)), 0)
            .ok());
  input.results = results_.rows();
  input.tops = results_.tops(static_cast<int64_t>(std::max(rows.size(), padded)));
  arena_.upload(sources_.stream);
  OpContext op = context();
  update_slot_state(op, {.entries = input.entries,
                         .marks = {},
                         .tokens = input.tokens,
                         .block_tables = sources_.slots.block_tables(),
                         .token_counts = sources_.slots.token_counts(),
                         .last_tokens = sources_.slots.last_tokens()});
  return input;
}

// Rows of the last pass that lie side by side in both are one copy.
void DeviceDraftPass::bring_features(std::span<const DraftRun> runs, const StepInput& input) {
  if (runs.front().feature_row < 0) {
    OpContext op = context();
    sources_.features->load(op, places_of(input), features_.row_range(0, std::ssize(input.tokens)));
    return;
  }
  for (size_t first = 0; first < runs.size();) {
    size_t last = first + 1;
    while (last < runs.size() && runs[last].feature_row == runs[last - 1].feature_row + 1) ++last;
    const auto count = static_cast<int64_t>(last - first);
    sources_.stream.copy(features_.row(static_cast<int64_t>(first)),
                         hidden_.row(runs[first].feature_row), count * hidden_.row_stride);
    first = last;
  }
}

void DeviceDraftPass::start(const StepInput& input, int32_t padded) {
  const auto recording = recordings_.find(padded);
  if (recording != recordings_.end() && recording->second.forward != nullptr) {
    sources_.stream.launch(*recording->second.forward);
    sources_.stream.launch(*recording->second.sample);
    return;
  }
  OpContext op = context();
  const Workspace::Mark mark(workspace_);
  const TensorView hidden = stages_.take_hidden(workspace_, input.tokens.size());
  stages_.forward(op, input, hidden, stages_.taps());
  if (!input.logit_rows.empty()) stages_.sample(op, input, hidden);
  if (padded > 0) recordings_.try_emplace(padded);
}

// What is recorded is no part of what the passes took.
void DeviceDraftPass::end() {
  sources_.stream.record(*ended_);
  for (auto& [rows, recording] : recordings_) {
    if (recording.forward != nullptr || !tried_.insert(rows).second) continue;
    Result<StepGraphs::Recording> made = StepRecorder::record({.device = sources_.device,
                                                               .mesh = sources_.mesh,
                                                               .hooks = sources_.options.hooks,
                                                               .stages = stages_,
                                                               .attention = shape_.attention,
                                                               .arena = arena_,
                                                               .results = results_,
                                                               .padding = *sources_.padding,
                                                               .keeps_states = false,
                                                               .adapter_slots = 0},
                                                              recorded_workspace_, {.rows = rows});
    if (made.ok()) recording = std::move(made).value();
  }
}

// An error of the stream is the step's to tell: here nothing follows.
void DeviceDraftPass::wait_for(size_t rows) {
  if (rows == 0) return;
  results_.copy_out(sources_.stream, 0);
  if (!sources_.stream.synchronize().ok()) return;
  const std::span<const DeviceSampleResult> results = results_.host_rows(0);
  for (size_t i = 0; i < rows; ++i) {
    chosen_[i].token = results[i].token;
    chosen_[i].fault = results[i].fault != 0;
    chosen_[i].logprob = results[i].logprob;
  }
}

std::optional<double> DeviceDraftPass::device_seconds() {
  if (!sources_.stream.synchronize().ok()) return 0;
  return ended_->seconds_since(*began_);
}

}  // namespace headrace
