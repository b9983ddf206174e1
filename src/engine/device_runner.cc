#include "engine/device_runner.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "engine/batch_builder.h"
#include "engine/device_sampler.h"
#include "engine/device_slots.h"
#include "engine/slot_table.h"
#include "engine/step_arena.h"
#include "engine/step_graphs.h"
#include "ops/attention_plan.h"
#include "ops/row_gather.h"
#include "tensor/workspace.h"

namespace headrace {
namespace {

// Rows of logits at a time: 256 rows of a 128,256-token vocabulary are 131 MB.
constexpr int32_t kLogitRowsMax = 256;
// Log-probabilities that results hold without growing: the 20 of the API for every slot.
constexpr int64_t kTopsPlanned = 20;

// Sizes that are fixed at start.
struct RunnerShape {
  std::vector<AttentionPlanShape> attention;  // [groups]
  DeviceSlotsShape slots;
  int64_t workspace_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t result_rows = 0, result_tops = 0;

  int64_t device_bytes() const {
    return workspace_bytes + arena_bytes + slots.bytes() +
           result_rows * static_cast<int64_t>(sizeof(DeviceSampleResult)) +
           result_tops * static_cast<int64_t>(sizeof(DeviceTopLogprob));
  }
};

std::vector<AttentionPlanShape> attention_shapes(const Device& device, const ModelSpec& spec,
                                                 const KvPlan& plan,
                                                 const ModelRunnerOptions& options) {
  std::vector<AttentionPlanShape> shapes;
  for (const KvGroupSpec& group : plan.groups) {
    const LayerKv& kv = spec.kv[static_cast<size_t>(group.layers.front())];
    shapes.push_back({.query_heads = spec.query_heads,
                      .kv_heads = kv.kv_heads,
                      .head_dim = kv.head_dim,
                      .block_tokens = plan.block_tokens,
                      .window = kv.window,
                      .sm_count = device.traits().sm_count,
                      .rows_max = options.max_num_batched_tokens,
                      .sequences_max = options.max_num_seqs});
  }
  return shapes;
}

// What a step's arena holds at most, but for logit biases.
int64_t arena_bytes(const RunnerShape& shape, const ModelRunnerOptions& options) {
  const auto groups = static_cast<int64_t>(shape.attention.size());
  const int64_t tokens = options.max_num_batched_tokens, slots = options.max_num_seqs;
  const int64_t entries = slots * groups * shape.slots.blocks_max;
  int64_t bytes = tokens * (4 + 4 + 8 * groups) +
                  entries * static_cast<int64_t>(sizeof(BlockTableEntry)) +
                  (tokens + slots) * static_cast<int64_t>(4 + sizeof(DeviceSampleRow));
  for (const AttentionPlanShape& attention : shape.attention) {
    bytes += attention_plan_bytes(attention);
  }
  const int64_t parts = 16 + 2 * groups;
  return bytes + parts * StepArena::kAlignment;
}

int64_t workspace_bytes(const Model& model, const RunnerShape& shape,
                        const ModelRunnerOptions& options) {
  const ModelSpec& spec = model.spec();
  const int64_t hidden_bytes =
      int64_t{spec.hidden_size} * dtype_info(model.activation_dtype()).block_bytes;
  const int64_t rows = std::min<int64_t>(
      kLogitRowsMax, options.max_num_batched_tokens + int64_t{options.max_num_seqs});
  int64_t partial = 0;
  for (const AttentionPlanShape& attention : shape.attention) {
    partial = std::max(partial, attention_partial_bytes(attention));
  }
  return (options.max_num_batched_tokens + rows) * hidden_bytes + rows * spec.vocab_size * 4 +
         partial +
         model.workspace_bytes(options.max_num_batched_tokens, static_cast<int32_t>(rows),
                               options.max_model_len, /*thread_count=*/0) +
         (64 << 10);
}

RunnerShape plan_shape(const Device& device, const Model& model, const KvPlan& plan,
                       const ModelRunnerOptions& options) {
  RunnerShape shape;
  shape.attention = attention_shapes(device, model.spec(), plan, options);
  shape.slots = {.slot_count = options.max_num_seqs,
                 .group_count = static_cast<int32_t>(plan.groups.size()),
                 .blocks_max = (options.max_model_len + plan.block_tokens - 1) / plan.block_tokens,
                 .vocab_size = model.spec().vocab_size};
  shape.workspace_bytes = workspace_bytes(model, shape, options);
  shape.arena_bytes = arena_bytes(shape, options);
  shape.result_rows = int64_t{options.max_num_batched_tokens} + options.max_num_seqs;
  shape.result_tops = kTopsPlanned * options.max_num_seqs;
  return shape;
}

// One step between submit_forward() and wait().
struct StepInFlight {
  std::vector<LogitRow> logit_rows;
  std::vector<DeviceSampleRow> sample_rows;
  std::unique_ptr<Event> done;  // results are on the host
  bool submitted = false;       // false: this place is free
  RunnerTiming timing;
};

// Points of a step on the device's clock. One more than steps in flight: the gap before a step
// begins where the one before it ended.
struct StepMarks {
  std::unique_ptr<Event> begin;  // its input has come, kernels start
  std::unique_ptr<Event> end;    // its last kernel has ended
};

// Whether every sequence of the plan computes one token and draws from it.
bool only_decodes(const StepPlan& plan) {
  return std::all_of(plan.work.begin(), plan.work.end(), [](const Work& work) {
    return work.count == 1 && work.samples && work.rows == LogitRows::kLast &&
           work.also_sample.empty();
  });
}

class DeviceRunner final : public Runner {
 public:
  DeviceRunner(Device& device, const Model& model, KvStorage storage, ModelRunnerOptions options,
               RunnerShape shape, StepArena arena, SampleResults results, DeviceSlots device_slots)
      : device_(device),
        model_(model),
        options_(std::move(options)),
        shape_(std::move(shape)),
        storage_(std::move(storage)),
        stream_(device.create_stream()),
        arena_(std::move(arena)),
        results_(std::move(results)),
        device_slots_(std::move(device_slots)),
        slots_(options_.max_num_seqs, static_cast<int32_t>(storage_.plan().groups.size())),
        builder_(storage_.plan()),
        sampler_(options_.end_ids, model.spec().vocab_size) {}
  ~DeviceRunner() override {
    (void)stream_->synchronize();
    if (copy_stream_ != nullptr) (void)copy_stream_->synchronize();
  }

  Status allocate();

  Ticket submit_forward(const StepPlan& plan) override;
  void submit_sample(Ticket ticket) override;
  Result<StepResult> wait(Ticket ticket) override;
  int64_t page_bytes() const override { return storage_.plan().page_bytes; }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    if (copy_stream_ != nullptr) HR_RETURN_IF_ERROR(copy_stream_->synchronize());
    return storage_.read_page(*stream_, from, to);
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    return storage_.write_page(*stream_, from, to);
  }
  RunnerTiming timing() const override { return timing_; }

 private:
  // The parts of a step's arena, as the device sees them.
  struct DeviceBatch {
    std::span<TokenId> tokens;              // [T]
    std::span<int32_t> positions;           // [T]
    std::vector<std::span<int64_t>> slots;  // [groups][T]
    std::span<BlockTableEntry> entries;
    std::span<TokenMark> marks;
    std::span<int32_t> logit_rows;           // [R]
    std::span<DeviceSampleRow> sample_rows;  // [R]
    std::span<DeviceLogitBias> biases;
  };

  OpContext context() { return {device_, *stream_, workspace_, mesh_, options_.hooks}; }
  static int place_of(Ticket ticket) {
    return static_cast<int>(ticket.value % static_cast<uint64_t>(kDeviceStepsInFlight));
  }
  StepInFlight& step_of(Ticket ticket) { return steps_[static_cast<size_t>(place_of(ticket))]; }
  StepMarks& marks_of(Ticket ticket) { return marks_[ticket.value % marks_.size()]; }
  // Copies `values` to the arena, and `padding` up to `count` in all.
  template <class T>
  std::span<T> put(std::span<const T> values, size_t count, T padding) {
    const std::span<T> taken = arena_.take<T>(std::max(count, values.size()));
    std::copy(values.begin(), values.end(), taken.begin());
    std::fill(taken.begin() + static_cast<std::ptrdiff_t>(values.size()), taken.end(), padding);
    return arena_.on_device(taken);
  }
  template <class T>
  std::span<T> put(std::span<const T> values) {
    return put(values, 0, T{});
  }
  void start_moves(const StepPlan& plan);
  Status make_room(Ticket ticket);
  void choose_shape(const StepPlan& plan);
  template <class Body>
  void start_stage(StepStage stage, const Body& body);
  void fill_arena(const StepPlan& plan, const ForwardBatch& batch);
  void plan_attention_of(const StepPlan& plan, const ForwardBatch& batch, size_t group);
  ForwardBatch device_forward_batch(const ForwardBatch& batch);
  void sample_rows(int64_t first, int64_t count);
  void note_timing(Ticket ticket, double collect_seconds);

  Device& device_;
  const Model& model_;
  const ModelRunnerOptions options_;
  const RunnerShape shape_;
  KvStorage storage_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> copy_stream_;  // of pages between tiers; made when there are some
  std::unique_ptr<Event> loaded_;        // what the step before this one loads
  SingleRank single_rank_;
  Mesh mesh_{&single_rank_, &single_rank_, &single_rank_};
  Workspace workspace_;
  StepArena arena_;
  SampleResults results_;
  DeviceSlots device_slots_;
  SlotTable slots_;
  BatchBuilder builder_;
  DeviceSampler sampler_;
  StepGraphs graphs_;
  std::array<StepInFlight, kDeviceStepsInFlight> steps_;
  std::array<StepMarks, kDeviceStepsInFlight + 1> marks_;
  RunnerTiming timing_;  // of the step that was waited for last
  const SystemClock clock_;
  uint64_t last_ticket_ = 0;
  Status status_;  // of what cannot be said when it happens

  // The step that is being submitted.
  size_t padded_rows_ = 0;  // 0: no padding, no graph
  StepGraphs::Shape graph_shape_;
  DeviceBatch on_device_;
  std::vector<AttentionPlan> attention_plans_;  // [groups]
  std::vector<ForwardBatch::Group> groups_;     // [groups]
  std::vector<AttentionSequence> sequences_;    // [S], of one group at a time
  std::vector<int32_t> logit_row_indices_;      // [R]
  std::optional<Workspace::Mark> step_mark_;
  TensorView hidden_;  // [T, D]
};

Status DeviceRunner::allocate() {
  HR_ASSIGN_OR_RETURN(Buffer buffer, device_.allocate(shape_.workspace_bytes));
  workspace_ = Workspace(std::move(buffer));
  for (StepInFlight& step : steps_) step.done = stream_->create_timer();
  for (StepMarks& marks : marks_) {
    marks = {stream_->create_timer(), stream_->create_timer()};
    stream_->record(*marks.end);
  }
  return ok_status();
}

Ticket DeviceRunner::submit_forward(const StepPlan& plan) {
  CHECK(plan.token_count <= options_.max_num_batched_tokens);
  const Ticket ticket(++last_ticket_);
  StepInFlight& step = step_of(ticket);
  CHECK_MSG(!step.submitted, "more steps in flight than the runner holds");
  const double before_build = clock_.now_seconds();
  start_moves(plan);
  const Result<const StepPlan*> mapped = storage_.map(plan, *stream_);
  if (status_ = mapped.status(); !status_.ok()) return ticket;
  slots_.update(**mapped);
  device_slots_.collect(**mapped);
  const ForwardBatch batch = builder_.build(plan, slots_);
  step.logit_rows.assign(builder_.logit_rows().begin(), builder_.logit_rows().end());
  sampler_.build(step.logit_rows, slots_);
  step.sample_rows.assign(sampler_.rows().begin(), sampler_.rows().end());
  choose_shape(plan);
  if (status_ = make_room(ticket); !status_.ok()) return ticket;

  fill_arena(plan, batch);
  const double before_upload = clock_.now_seconds();
  storage_.copy_pages(*stream_, plan.copies);
  device_slots_.clear_counts(*stream_);
  arena_.upload(*stream_);
  stream_->record(*marks_of(ticket).begin);
  const double after_upload = clock_.now_seconds();
  step.timing = {.build_seconds = before_upload - before_build,
                 .upload_seconds = after_upload - before_upload};
  OpContext op = context();
  update_slot_state(op, {.entries = on_device_.entries,
                         .marks = on_device_.marks,
                         .tokens = on_device_.tokens,
                         .block_tables = device_slots_.block_tables(),
                         .token_counts = device_slots_.token_counts(),
                         .last_tokens = device_slots_.last_tokens()});
  if (plan.work.empty()) return ticket;
  step_mark_.emplace(workspace_);
  hidden_ = workspace_.take_tensor(
      model_.activation_dtype(),
      Shape{static_cast<int64_t>(on_device_.tokens.size()), model_.spec().hidden_size});
  const ForwardBatch forward = device_forward_batch(batch);
  start_stage(StepStage::kForward, [&] {
    model_.embed(op, forward, hidden_);
    model_.layers(op, forward, {0, model_.spec().layer_count}, storage_.layers(), hidden_,
                  options_.taps);
  });
  return ticket;
}

// Pages that change tiers go on a stream of their own, beside the step before. What is stored was
// written by steps that have ended, and must be out before this step writes; what is loaded is read
// by the next step, not by this one.
void DeviceRunner::start_moves(const StepPlan& plan) {
  if (loaded_ != nullptr) stream_->wait(*loaded_);
  loaded_ = nullptr;
  if (plan.stores.empty() && plan.loads.empty()) return;
  if (copy_stream_ == nullptr) copy_stream_ = device_.create_stream();
  if (!plan.stores.empty()) {
    storage_.move_pages(*copy_stream_, plan.stores);
    stream_->wait(*copy_stream_->record());
  }
  if (plan.loads.empty()) return;
  storage_.move_pages(*copy_stream_, plan.loads);
  loaded_ = copy_stream_->record();
}

// Steps that only decode are padded to one of few numbers of rows, each with its recording.
void DeviceRunner::choose_shape(const StepPlan& plan) {
  padded_rows_ = 0;
  if (plan.work.empty()) return;
  if (!options_.graphs || options_.taps.after_layer || !only_decodes(plan)) return;
  const int32_t rows_max =
      std::min({kLogitRowsMax, options_.max_num_seqs, options_.max_num_batched_tokens});
  padded_rows_ = static_cast<size_t>(
      StepGraphs::padded_rows(static_cast<int32_t>(plan.work.size()), rows_max));
}

template <class Body>
void DeviceRunner::start_stage(StepStage stage, const Body& body) {
  if (padded_rows_ == 0) return body();
  const Status status = graphs_.run(*stream_, graph_shape_, stage, body);
  if (!status.ok()) log_warning("a step is not recorded: {}", status.message());
}

// Logit biases, marks and log-probabilities are as many as requests ask for; all else was planned.
Status DeviceRunner::make_room(Ticket ticket) {
  arena_.start_step();
  const auto extra =
      static_cast<int64_t>(sampler_.biases().size_bytes() + device_slots_.marks().size_bytes());
  HR_ASSIGN_OR_RETURN(const bool arena_moved, arena_.reserve(*stream_, shape_.arena_bytes + extra));
  const auto rows = std::max(builder_.logit_rows().size(), padded_rows_);
  HR_ASSIGN_OR_RETURN(const bool results_moved,
                      results_.reserve(*stream_, place_of(ticket), static_cast<int64_t>(rows),
                                       sampler_.top_count()));
  if (arena_moved || results_moved) graphs_.clear();
  return ok_status();
}

// Parts whose size a recording fixes come first, so that their places depend on its rows alone.
void DeviceRunner::fill_arena(const StepPlan& plan, const ForwardBatch& batch) {
  const size_t rows = padded_rows_;
  const int64_t padding_slot = storage_.padding_slot();
  on_device_.tokens = put(batch.tokens, rows, TokenId{0});
  on_device_.positions = put(batch.positions, rows, int32_t{0});
  on_device_.slots.clear();
  attention_plans_.resize(batch.groups.size());
  graph_shape_ = {.rows = static_cast<int32_t>(rows)};
  for (size_t group = 0; group < batch.groups.size(); ++group) {
    on_device_.slots.push_back(put(batch.groups[group].slots, rows, padding_slot));
    plan_attention_of(plan, batch, group);
    if (attention_plans_[group].has_merge) graph_shape_.merge_groups |= uint32_t{1} << group % 32;
  }
  logit_row_indices_.clear();
  for (const LogitRow& row : builder_.logit_rows()) logit_row_indices_.push_back(row.batch_row);
  on_device_.logit_rows = put(std::span<const int32_t>(logit_row_indices_), rows, int32_t{0});
  on_device_.sample_rows =
      put(sampler_.rows(), rows, DeviceSampler::padding(device_slots_.padding_slot()));
  on_device_.biases = put(sampler_.biases());
  on_device_.entries = put(device_slots_.entries());
  on_device_.marks = put(device_slots_.marks());
}

// Tiles read block tables where they are on the device.
void DeviceRunner::plan_attention_of(const StepPlan& plan, const ForwardBatch& batch,
                                     size_t group) {
  sequences_.assign(batch.groups[group].sequences.begin(), batch.groups[group].sequences.end());
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].block_table =
        device_slots_.block_table(plan.work[i].slot, static_cast<int32_t>(group));
  }
  const auto bytes = static_cast<size_t>(attention_plan_bytes(shape_.attention[group]));
  const std::span<std::byte> arena = arena_.take<std::byte>(bytes);
  attention_plans_[group] = plan_attention(shape_.attention[group], sequences_, arena);
  attention_plans_[group].device = arena_.on_device(arena).data();
}

ForwardBatch DeviceRunner::device_forward_batch(const ForwardBatch& batch) {
  groups_.clear();
  for (size_t group = 0; group < batch.groups.size(); ++group) {
    groups_.push_back(
        {.slots = on_device_.slots[group], .sequences = {}, .plan = &attention_plans_[group]});
  }
  return {.tokens = on_device_.tokens,
          .positions = on_device_.positions,
          .groups = groups_,
          .layer_group = batch.layer_group};
}

void DeviceRunner::submit_sample(Ticket ticket) {
  CHECK(ticket.value == last_ticket_);
  StepInFlight& step = step_of(ticket);
  if (status_.ok()) {
    const auto rows = static_cast<int64_t>(on_device_.logit_rows.size());
    start_stage(StepStage::kSample, [&] {
      for (int64_t first = 0; first < rows; first += kLogitRowsMax) {
        sample_rows(first, std::min<int64_t>(kLogitRowsMax, rows - first));
      }
    });
    stream_->record(*marks_of(ticket).end);
    results_.copy_out(*stream_, place_of(ticket));
  }
  for (const LogitRow& row : step.logit_rows) {
    if (row.samples) slots_.expect(row.slot);
  }
  step_mark_.reset();
  stream_->record(*step.done);
  step.submitted = true;
}

void DeviceRunner::sample_rows(int64_t first, int64_t count) {
  Workspace::Mark mark(workspace_);
  const ModelSpec& spec = model_.spec();
  const TensorView gathered =
      workspace_.take_tensor(model_.activation_dtype(), Shape{count, spec.hidden_size});
  const TensorView logits = workspace_.take_tensor(DType::kF32, Shape{count, spec.vocab_size});
  OpContext op = context();
  row_gather(op, {.x = hidden_,
                  .rows = on_device_.logit_rows.subspan(static_cast<size_t>(first),
                                                        static_cast<size_t>(count)),
                  .out = gathered});
  model_.head(op, gathered, logits);
  device_sample(op, {.logits = logits,
                     .rows = on_device_.sample_rows.data() + first,
                     .biases = on_device_.biases.data(),
                     .token_counts = device_slots_.token_counts(),
                     .last_tokens = device_slots_.last_tokens(),
                     .results = results_.rows() + first,
                     .tops = results_.tops()});
}

Result<StepResult> DeviceRunner::wait(Ticket ticket) {
  StepInFlight& step = step_of(ticket);
  CHECK(step.submitted);
  HR_RETURN_IF_ERROR(status_);
  step.done->wait();
  step.submitted = false;
  HR_RETURN_IF_ERROR(stream_->status());
  if (copy_stream_ != nullptr) HR_RETURN_IF_ERROR(copy_stream_->status());
  const double done = clock_.now_seconds();
  const std::span<const DeviceSampleResult> sampled = results_.host_rows(place_of(ticket));
  StepResult result = DeviceSampler::collect(step.logit_rows, step.sample_rows, sampled,
                                             results_.host_tops(place_of(ticket)));
  for (size_t i = 0; i < step.logit_rows.size(); ++i) {
    // A faulty row has no token; its sequence ends, what it would read next does not matter.
    if (step.logit_rows[i].samples) {
      slots_.append(step.logit_rows[i].slot, std::max(sampled[i].token, TokenId{0}));
    }
  }
  note_timing(ticket, clock_.now_seconds() - done);
  return result;
}

void DeviceRunner::note_timing(Ticket ticket, double collect_seconds) {
  const StepMarks& marks = marks_of(ticket);
  timing_ = step_of(ticket).timing;
  timing_.collect_seconds = collect_seconds;
  timing_.device_seconds = marks.end->seconds_since(*marks.begin);
  timing_.gap_seconds = marks.begin->seconds_since(*marks_of(Ticket(ticket.value - 1)).end);
}

}  // namespace

int64_t device_runner_bytes(const Device& device, const Model& model, const KvPlan& plan,
                            const ModelRunnerOptions& options) {
  return plan_shape(device, model, plan, options).device_bytes();
}

Result<std::unique_ptr<Runner>> create_device_runner(Device& device, const Model& model,
                                                     KvStorage storage,
                                                     ModelRunnerOptions options) {
  RunnerShape shape = plan_shape(device, model, storage.plan(), options);
  HR_ASSIGN_OR_RETURN(StepArena arena, StepArena::create(device, shape.arena_bytes));
  HR_ASSIGN_OR_RETURN(
      SampleResults results,
      SampleResults::create(device, kDeviceStepsInFlight, shape.result_rows, shape.result_tops));
  HR_ASSIGN_OR_RETURN(DeviceSlots device_slots, DeviceSlots::create(device, shape.slots));
  auto runner = std::make_unique<DeviceRunner>(
      device, model, std::move(storage), std::move(options), std::move(shape), std::move(arena),
      std::move(results), std::move(device_slots));
  HR_RETURN_IF_ERROR(runner->allocate());
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace headrace
