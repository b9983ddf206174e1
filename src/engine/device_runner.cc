#include "engine/device_runner.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "engine/batch_builder.h"
#include "engine/device_draft_pass.h"
#include "engine/device_sampler.h"
#include "engine/device_slots.h"
#include "engine/form_mask.h"
#include "engine/idle_trials.h"
#include "engine/kv_poison.h"
#include "engine/model_drafter.h"
#include "engine/padding_step.h"
#include "engine/page_moves.h"
#include "engine/rehearsed_sizes.h"
#include "engine/runner_shape.h"
#include "engine/scratch_poison.h"
#include "engine/slot_table.h"
#include "engine/state_storage.h"
#include "engine/step_arena.h"
#include "engine/step_recorder.h"
#include "engine/step_stages.h"
#include "engine/step_submission.h"
#include "engine/step_writer.h"
#include "engine/steps_in_flight.h"
#include "engine/token_masks.h"
#include "engine/verification.h"
#include "tensor/workspace.h"

namespace headrace {
namespace {

// What the driver takes for a layer of a recorded step.
constexpr int64_t kRecordedLayerBytes = 32 << 10;

// Memory that nothing may read is NaN, where tests ask for it.
struct Poisons {
  std::optional<ScratchPoison> scratch;
  std::optional<KvPoison> kv;
};

// What a runner has of the other parts of its model, where that is split.
struct PartSeat {
  RankSeat ranks;
  const StageSeat stage;
};

class DeviceRunner final : public DeviceStage {
 public:
  DeviceRunner(Device& device, const Model& model, KvStorage storage, StateStorage states,
               ModelRunnerOptions options, RunnerShape shape, StepArena arena,
               SampleResults results, DeviceSlots device_slots, TokenMasks masks, RankLink link,
               const StageSeat& stage)
      : device_(device),
        seat_{RankSeat(link), stage},
        options_(std::move(options)),
        shape_(std::move(shape)),
        storage_(std::move(storage)),
        states_(std::move(states)),
        stream_(device.create_stream()),
        page_moves_(device, storage_),
        arena_(std::move(arena)),
        results_(std::move(results)),
        device_slots_(std::move(device_slots)),
        masks_(std::move(masks)),
        slots_(options_.max_num_seqs, static_cast<int32_t>(storage_.plan().groups.size()),
               shape_.slots.blocks_max, SlotTable::Counting::kNone),
        builder_(storage_.plan(), {0, model.spec().layer_count},
                 options_.keep_logit_rows && seat_.stage.samples()),
        sampler_(options_.end_ids, model.spec().vocab_size, options_.max_num_seqs),
        acceptance_(options_.synthetic_acceptance),
        writer_(arena_, {.attention = shape_.attention,
                         .storage = storage_,
                         .states = states_,
                         .slots = device_slots_,
                         .adapter_slots = shape_.adapter_slots,
                         .last_layer = model.spec().layer_count - 1}),
        steps_(options_.steps_in_flight) {}
  ~DeviceRunner() override {
    (void)stream_->synchronize();
    (void)page_moves_.synchronize();
  }

  // Everything that can fail or take long. Once, before all others.
  Status start(const Model& model);

  Ticket submit_forward(const StepPlan& plan) override;
  bool sample_needs_results(Ticket ticket) override;
  void submit_sample(Ticket ticket) override;
  Result<StepResult> wait(Ticket ticket) override;
  Status settle(Ticket ticket, const StepResult& result) override;
  Status status() const override { return status_; }
  bool takes_constraints() const override { return true; }
  bool takes_adapters() const override { return options_.adapter_slots != nullptr; }
  int64_t page_bytes() const override { return storage_.plan().page_bytes; }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    device_.make_current();
    HR_RETURN_IF_ERROR(page_moves_.synchronize());
    return storage_.read_page(*stream_, from, to);
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    device_.make_current();
    return storage_.write_page(*stream_, from, to);
  }
  RunnerTiming timing() const override { return timing_; }
  bool idle_work() override;

 private:
  OpContext context() {
    return {device_, *stream_, workspace_, seat_.ranks.mesh(), options_.hooks};
  }
  OpContext lone_context() {
    return {device_, *stream_, workspace_, seat_.ranks.lone_mesh(), options_.hooks};
  }
  Status create_recorder();
  Status create_drafter(const Model& model, std::shared_ptr<const DraftFeatures> features);
  Status make_room(Ticket ticket, size_t rows);
  Status build(const StepPlan& plan, StepSubmission& submission);
  void upload(const StepInput& input);
  void rehearse(const StepInput& input);
  void start_forward(StepSubmission& submission);
  void make_masks(StepInFlight& step);
  void start_sample(const StepSubmission& submission);
  Result<double> run_padding(const PaddingStep& step);
  Status end(Ticket ticket);
  void hold_adapters(const StepPlan& plan, StepInFlight& step);

  void note(Status status);
  bool all_ranks_go_on() const;
  void record_sizes();

  Device& device_;
  PartSeat seat_;
  const ModelRunnerOptions options_;
  const RunnerShape shape_;
  KvStorage storage_;
  StateStorage states_;
  std::unique_ptr<Stream> stream_;
  PageMoves page_moves_;
  Workspace workspace_;
  StepArena arena_;
  SampleResults results_;
  DeviceSlots device_slots_;
  TokenMasks masks_;
  std::optional<const StepStages> stages_;
  SlotTable slots_;
  BatchBuilder builder_;
  DeviceSampler sampler_;
  AcceptanceRule acceptance_;
  StepWriter writer_;
  StepsInFlight steps_;
  RunnerTiming timing_;  // of the step that was waited for last
  uint64_t last_ticket_ = 0;
  Status status_;  // the first error that could not be said when it happened

  std::optional<StepSubmission> submission_;  // between its two stages
  RehearsedSizes rehearsed_;                  // of ranks

  PaddingTable padding_;  // empty where no step is recorded
  Poisons poisons_;
  std::optional<IdleTrials> trials_;  // none where no step is recorded
  std::unique_ptr<Drafter> drafter_;  // null: no draft
  // Last: its thread uses what stands above. nullptr: no step is recorded.
  std::unique_ptr<StepRecorder> recorder_;
};

Status DeviceRunner::start(const Model& model) {
  HR_ASSIGN_OR_RETURN(Buffer scratch, device_.allocate(shape_.workspace_bytes));
  if (options_.poison_workspace) {
    HR_ASSIGN_OR_RETURN(Poison poison, Poison::create(device_, *stream_));
    poisons_.scratch.emplace(std::move(poison));
    poisons_.scratch->cover(scratch);
  }
  if (options_.poison_kv) {
    HR_ASSIGN_OR_RETURN(poisons_.kv,
                        KvPoison::create(device_, *stream_, storage_, options_.block_count));
  }
  workspace_ = Workspace(std::move(scratch));
  steps_.create_events(*stream_);
  HR_ASSIGN_OR_RETURN(std::shared_ptr<const DraftFeatures> features,
                      create_features(device_, model, storage_, options_));
  std::vector<LayerTap> taps = options_.taps;
  if (features != nullptr) {
    taps.insert(taps.end(), features->taps().begin(), features->taps().end());
    builder_.place_too(features->layers());
  }
  stages_.emplace(StepStages::Sources{.model = model,
                                      .storage = storage_,
                                      .states = states_,
                                      .slots = device_slots_,
                                      .masks = masks_,
                                      .adapters = options_.adapter_slots.get(),
                                      .layers = seat_.stage.layers},
                  taps);
  if (shape_.graph_rows_max > 0) HR_RETURN_IF_ERROR(create_recorder());
  if (options_.has_draft()) HR_RETURN_IF_ERROR(create_drafter(model, std::move(features)));
  if (shape_.graph_rows_max == 0 || !options_.graphs_at_start) return ok_status();
  while (idle_work()) {
  }
  HR_RETURN_IF_ERROR(status_);
  const int64_t free_before = device_.free_bytes();
  recorder_->graphs().wait();
  log_info("{} sizes of decode steps are recorded, {} MiB", recorder_->graphs().recorded(),
           (free_before - device_.free_bytes()) >> 20);
  return stream_->status();
}

Status DeviceRunner::create_recorder() {
  const int32_t block_tokens = storage_.plan().block_tokens;
  HR_ASSIGN_OR_RETURN(
      padding_, PaddingTable::create(
                    device_, *stream_, static_cast<int32_t>(storage_.padding_slot() / block_tokens),
                    block_tokens,
                    padding_prompt_tokens(options_.max_num_batched_tokens, options_.max_num_seqs)));
  HR_ASSIGN_OR_RETURN(Buffer scratch, device_.allocate(shape_.graph_workspace_bytes));
  if (poisons_.scratch.has_value()) poisons_.scratch->cover(scratch);
  recorder_ = std::make_unique<StepRecorder>(
      StepRecorder::Sources{device_, seat_.ranks.mesh(), options_.hooks, *stages_, shape_.attention,
                            arena_, results_, padding_, states_.has_states(), shape_.adapter_slots},
      Workspace(std::move(scratch)), shape_.graph_rows_max);
  trials_.emplace(device_, *stream_, recorder_->graphs(), padding_,
                  IdleTrials::Options{.gemms = options_.gemm_trials,
                                      .full_steps = options_.full_step_trials,
                                      .step_tokens = options_.max_num_batched_tokens,
                                      .adapters = takes_adapters()},
                  [this](const PaddingStep& step) { return run_padding(step); });
  return ok_status();
}

Status DeviceRunner::create_drafter(const Model& model,
                                    std::shared_ptr<const DraftFeatures> features) {
  HR_ASSIGN_OR_RETURN(
      std::unique_ptr<DraftPass> pass,
      DeviceDraftPass::create({.device = device_,
                               .stream = *stream_,
                               .mesh = seat_.ranks.mesh(),
                               .model = model,
                               .storage = storage_,
                               .slots = device_slots_,
                               .masks = masks_,
                               .padding = recorder_ == nullptr ? nullptr : &padding_,
                               .features = features.get(),
                               .options = options_}));
  drafter_ = std::make_unique<ModelDrafter>(model, storage_, options_, std::move(features),
                                            std::move(pass));
  return ok_status();
}

// Each call may be the first of its thread, which begins on the first GPU.
Ticket DeviceRunner::submit_forward(const StepPlan& plan) {
  device_.make_current();
  CHECK(plan.token_count <= options_.max_num_batched_tokens);
  const Ticket ticket(++last_ticket_);
  StepInFlight& step = steps_[ticket];
  CHECK_MSG(!step.submitted, "more steps in flight than the runner holds");
  const double before_build = SystemClock().now_seconds();
  StepSubmission& submission = submission_.emplace();
  submission.ticket = ticket;
  page_moves_.start(plan, *stream_);
  if (status_.ok()) note(build(plan, submission));
  const StageRows* const before = seat_.stage.before;
  const bool awaits = before != nullptr && !plan.work.empty();
  if (awaits && !before->holds(ticket)) note(unavailable("the stage before this one has failed"));
  if (!status_.ok()) return ticket;
  const double before_upload = SystemClock().now_seconds();
  if (poisons_.scratch.has_value()) poisons_.scratch->start(*stream_);
  upload(submission.input);
  if (!plan.work.empty()) rehearse(submission.input);
  if (awaits) before->await(*stream_, ticket);
  stream_->record(*steps_.marks(ticket).begin);
  step.timing = {.build_seconds = before_upload - before_build,
                 .upload_seconds = SystemClock().now_seconds() - before_upload};
  if (!plan.work.empty()) {
    start_forward(submission);
    if (seat_.stage.behind != nullptr) {
      seat_.stage.behind->send(*stream_, ticket, submission.hidden.row_range(0, plan.token_count));
    }
  }
  if (drafter_ != nullptr) drafter_->keep_features(places_of(submission.input));
  states_.fork(plan, *stream_);
  return ticket;
}

// The plan and what the slots say -> what the device reads, in the step's arena.
Status DeviceRunner::build(const StepPlan& plan, StepSubmission& submission) {
  if (poisons_.kv.has_value()) poisons_.kv->new_pages(*stream_, plan);
  HR_ASSIGN_OR_RETURN(const StepPlan* const mapped, storage_.map(plan, *stream_));
  slots_.update(*mapped);
  device_slots_.collect(*mapped);
  states_.begin_step(plan, *stream_);
  storage_.copy_pages(*stream_, plan.copies);
  // It waits for its tokens, and so for the steps before.
  const StepPlan& proposed = drafter_ == nullptr ? plan : drafter_->propose(plan, slots_);
  // What a token takes differs between ranks, and those of a step are all recorded or none.
  const int64_t token_bytes = seat_.ranks.is_alone() ? storage_.plan().bytes_per_token()
                                                     : std::numeric_limits<int64_t>::max();
  const int32_t padded_rows =
      recorder_ == nullptr ? 0 : recorder_->padded_rows(proposed, token_bytes);
  const ForwardBatch batch = builder_.build(
      proposed, slots_,
      padded_rows > 0 ? BatchBuilder::Attending::kAlone : BatchBuilder::Attending::kTogether);
  StepInFlight& step = steps_[submission.ticket];
  step.logit_rows.assign(builder_.logit_rows().begin(), builder_.logit_rows().end());
  if (seat_.stage.samples()) sampler_.build(step.logit_rows, slots_, step.sample_rows);
  hold_adapters(plan, step);
  submission.size = {.rows = padded_rows,
                     .adapters = batch.adapters.any(),
                     .rows_meet = proposed.token_count > std::ssize(proposed.work)};
  const auto padded = static_cast<size_t>(submission.size.rows);
  const size_t rows = std::max(step.logit_rows.size(), padded);
  HR_RETURN_IF_ERROR(make_room(submission.ticket, rows));
  submission.input = writer_.write(
      batch, builder_.sequence_slots(),
      {.rows = step.logit_rows, .sample_rows = step.sample_rows, .biases = sampler_.biases()},
      padded);
  submission.input.results = results_.rows();
  submission.input.tops = results_.tops(static_cast<int64_t>(rows));
  return ok_status();
}

// Their slots are read until the step has ended, whatever becomes of the requests.
void DeviceRunner::hold_adapters(const StepPlan& plan, StepInFlight& step) {
  step.adapters.clear();
  for (const Work& work : plan.work) {
    const auto& adapter = slots_[work.slot].request->adapter_weights;
    if (adapter != nullptr) step.adapters.push_back(adapter);
  }
}

void DeviceRunner::upload(const StepInput& input) {
  device_slots_.clear_counts(*stream_);
  arena_.upload(*stream_);
  OpContext op = context();
  update_slot_state(op, {.entries = input.entries,
                         .marks = input.marks,
                         .tokens = input.tokens,
                         .block_tables = device_slots_.block_tables(),
                         .token_counts = device_slots_.token_counts(),
                         .last_tokens = device_slots_.last_tokens()});
}

// Of ranks, before a step whose products are of new sizes: its forward stage without the others,
// for no outcome (it writes keys and values that the step writes again, and no states, which would
// go on twice), while no kernel waits for another rank. The
// library loads what it has chosen for a size at its first product. A driver that loads may hold
// other threads' calls up and wait for its GPU: if a sum waited there for a rank whose launch is
// held up, both would stand still. All ranks have seen the same sizes.
void DeviceRunner::rehearse(const StepInput& input) {
  if (seat_.ranks.is_alone() || !rehearsed_.adds(input)) return;
  note(stream_->synchronize());
  seat_.ranks.meet();
  OpContext op = lone_context();
  {
    const Workspace::Mark mark(workspace_);
    const TensorView hidden = stages_->take_hidden(workspace_, input.tokens.size());
    StepInput without_states = input;
    without_states.states = {};
    stages_->forward(op, without_states, hidden, /*taps=*/{});
    stages_->rehearse_sample(op, input, hidden);
  }
  note(stream_->synchronize());
  seat_.ranks.meet();
}

void DeviceRunner::start_forward(StepSubmission& submission) {
  if (submission.size.rows > 0) {
    submission.recording = recorder_->graphs().find(submission.size);
  }
  if (submission.recording != nullptr) {
    submission.hidden = submission.recording->hidden;
  } else {
    submission.scratch.emplace(workspace_);
    submission.hidden = stages_->take_hidden(workspace_, submission.input.tokens.size());
  }
  if (seat_.stage.before != nullptr) {
    seat_.stage.before->take(*stream_, submission.ticket, submission.hidden);
  }
  if (submission.recording != nullptr) return stream_->launch(*submission.recording->forward);
  OpContext op = context();
  stages_->forward(op, submission.input, submission.hidden, stages_->taps());
}

// Logit biases, marks and log-probabilities are as many as requests ask for; all else was planned.
Status DeviceRunner::make_room(Ticket ticket, size_t rows) {
  arena_.start_step();
  const StepCounts asked{.biases = sampler_.biases().size(), .marks = device_slots_.marks().size()};
  const int64_t beyond = std::max<int64_t>(0, asked.request_bytes() - shape_.step.request_bytes());
  const auto result_rows = static_cast<int64_t>(rows);
  const bool grows = !arena_.fits(shape_.arena_bytes + beyond);
  const bool moves = grows || !results_.fits(result_rows, sampler_.top_count());
  Status status;
  if (moves && recorder_ != nullptr) {
    status = stream_->synchronize();
    if (status.ok()) recorder_->graphs().clear();
  }
  // Twice what was not planned: ranks, of which each has planned for its own heads, grow in the
  // same steps.
  if (status.ok() && grows) status = arena_.reserve(*stream_, shape_.arena_bytes + 2 * beyond);
  if (status.ok()) {
    status = results_.reserve(*stream_, steps_.place_of(ticket), result_rows, sampler_.top_count());
  }
  // A GPU may wait for its peers where memory is allocated, so none of them goes on before all
  // have.
  if (moves) seat_.ranks.meet();
  return status;
}

// A mask is of the tokens that stand before its row, the last of which a step in flight may sample.
bool DeviceRunner::sample_needs_results(Ticket ticket) {
  const StepInFlight& step = steps_[ticket];
  for (size_t i = 0; status_.ok() && i < step.logit_rows.size(); ++i) {
    if (step.sample_rows[i].mask >= 0 && slots_[step.logit_rows[i].slot].in_flight > 0) return true;
  }
  return false;
}

// Beside the step's forward stage.
void DeviceRunner::make_masks(StepInFlight& step) {
  step.dead_ends.clear();
  masks_.start_step();
  for (size_t i = 0; i < step.logit_rows.size(); ++i) {
    const int32_t mask = step.sample_rows[i].mask;
    if (mask < 0) continue;
    const Slot& slot = slots_[step.logit_rows[i].slot];
    CHECK(slot.in_flight == 0 && step.logit_rows[i].ahead == 0);
    step.dead_ends.push_back(!fill_form_mask(*slot.matcher, slot.request->sampling,
                                             static_cast<int32_t>(slot.output().size()),
                                             options_.end_ids, masks_.on_host(mask)));
  }
  masks_.upload(*stream_, static_cast<int32_t>(step.dead_ends.size()));
}

void DeviceRunner::submit_sample(Ticket ticket) {
  device_.make_current();
  CHECK(submission_.has_value() && ticket.value == submission_->ticket.value);
  StepInFlight& step = steps_[ticket];
  if (status_.ok()) {
    if (seat_.stage.samples()) {
      make_masks(step);
      start_sample(*submission_);
    }
    stream_->record(*steps_.marks(ticket).end);
    if (seat_.stage.samples()) results_.copy_out(*stream_, steps_.place_of(ticket));
    if (submission_->size.rows > 0 && seat_.ranks.is_alone()) {
      recorder_->graphs().has_run(submission_->size);
    }
  }
  for (const LogitRow& row : step.logit_rows) {
    if (row.samples && row.ahead == 0) slots_.expect(row.slot);
  }
  submission_.reset();
  stream_->record(*step.done);
  step.submitted = true;
}

void DeviceRunner::start_sample(const StepSubmission& submission) {
  if (submission.recording != nullptr) return stream_->launch(*submission.recording->sample);
  OpContext op = context();
  stages_->sample(op, submission.input, submission.hidden);
}

// The first error stays, and nobody waits for this rank on the host any more.
void DeviceRunner::note(Status status) {
  if (!status_.ok() || status.ok()) return;
  status_ = std::move(status);
  seat_.ranks.leave();
}

// One that does not would be waited for.
bool DeviceRunner::all_ranks_go_on() const {
  return seat_.ranks.largest(status_.ok() ? 0 : 1) == 0;
}

bool DeviceRunner::idle_work() {
  device_.make_current();
  if (!trials_.has_value() || !all_ranks_go_on()) return false;
  const Result<bool> more = trials_->run_one();
  note(more.status());
  if (more.ok() && !seat_.ranks.is_alone()) {
    // What a trial has decided is being recorded.
    *more ? recorder_->graphs().wait() : record_sizes();
  }
  return more.ok() && *more;
}

// Of ranks, while nothing runs: where a driver makes a recording it may wait for the GPU, on which
// a kernel may wait for another rank.
void DeviceRunner::record_sizes() {
  for (const int32_t size : recorder_->graphs().sizes()) recorder_->graphs().has_run({size});
  recorder_->graphs().wait();
}

// A step of nothing but padding; its seconds on the device, of ranks on the slowest. REQUIRES: no
// step is in flight
Result<double> DeviceRunner::run_padding(const PaddingStep& step) {
  arena_.start_step();
  StepInput input = writer_.write_padding(step);
  input.results = results_.rows();
  input.tops = results_.tops(step.logit_rows);
  arena_.upload(*stream_);
  const StepMarks& marks = steps_.marks(Ticket(0));
  stream_->record(*marks.begin);
  OpContext op = step.lone ? lone_context() : context();
  if (step.lone) rehearsed_.adds(input);
  const Workspace::Mark mark(workspace_);
  const TensorView hidden = stages_->take_hidden(workspace_, input.tokens.size());
  if (seat_.stage.before != nullptr) {
    stream_->fill_zero(hidden.data, hidden.rows() * hidden.row_stride);
  }
  stages_->forward(op, input, hidden, /*taps=*/{});
  if (stages_->samples()) stages_->sample(op, input, hidden);
  stream_->record(*marks.end);
  const Status status = stream_->synchronize();
  const double seconds =
      seat_.ranks.largest(status.ok() ? marks.end->seconds_since(*marks.begin) : 0);
  HR_RETURN_IF_ERROR(status);
  return seconds;
}

// Waits for the step, which then is in flight no more.
Status DeviceRunner::end(Ticket ticket) {
  device_.make_current();
  StepInFlight& step = steps_[ticket];
  CHECK(step.submitted);
  HR_RETURN_IF_ERROR(status_);
  step.done->wait();
  step.submitted = false;
  step.adapters.clear();
  note(stream_->status());
  note(page_moves_.status());
  note(seat_.ranks.status());
  return status_;
}

Status DeviceRunner::settle(Ticket ticket, const StepResult& result) {
  HR_RETURN_IF_ERROR(end(ticket));
  append_accepted(steps_[ticket].logit_rows, result, slots_);
  timing_ = steps_.timing(ticket);
  return ok_status();
}

Result<StepResult> DeviceRunner::wait(Ticket ticket) {
  HR_RETURN_IF_ERROR(end(ticket));
  StepInFlight& step = steps_[ticket];
  const double done = SystemClock().now_seconds();
  const std::span<const DeviceSampleResult> sampled = results_.host_rows(steps_.place_of(ticket));
  StepResult result =
      DeviceSampler::collect(step.logit_rows, step.sample_rows, sampled,
                             results_.host_tops(steps_.place_of(ticket)), step.dead_ends);
  CHECK(cut_rejected(step.logit_rows, acceptance_, result).empty());  // of chains
  if (drafter_ != nullptr) drafter_->settle(slots_, result);
  if (poisons_.kv.has_value()) poisons_.kv->rejected(*stream_, step.logit_rows, result, slots_);
  append_accepted(step.logit_rows, result, slots_);
  note_ended_forms(step.logit_rows, options_.end_ids, slots_, result);
  const double collect_seconds = SystemClock().now_seconds() - done;
  timing_ = steps_.timing(ticket);
  timing_.collect_seconds = collect_seconds;
  return result;
}

}  // namespace

int64_t device_runner_bytes(const Device& device, const Model& model, const KvPlan& plan,
                            const ModelRunnerOptions& options) {
  const int64_t drafts =
      options.has_draft() ? DeviceDraftPass::bytes(device, model, plan, options) : 0;
  return RunnerShape::plan(device, model, plan, options).device_bytes() + drafts;
}

int64_t device_recording_bytes(const Model& model, const ModelRunnerOptions& options) {
  const auto sizes =
      static_cast<int64_t>(StepGraphs::sizes_up_to(recorded_rows_max(options)).size());
  // With and without adapters; of plain steps, and of those that verify proposals.
  const int64_t of_each = (options.proposals ? 2 : 1) * (options.adapter_slots == nullptr ? 1 : 2);
  const int64_t of_draft = options.draft == nullptr ? 0 : options.draft->spec().layer_count;
  return (of_each * model.spec().layer_count + of_draft) * sizes * kRecordedLayerBytes;
}

namespace {

Result<std::unique_ptr<DeviceStage>> create(Device& device, const Model& model, KvStorage storage,
                                            ModelRunnerOptions options, RankLink link,
                                            const StageSeat& stage) {
  const int steps = options.steps_in_flight;
  RunnerShape shape = RunnerShape::plan(device, model, storage.plan(), options);
  HR_ASSIGN_OR_RETURN(StepArena arena, StepArena::create(device, shape.arena_bytes, steps));
  HR_ASSIGN_OR_RETURN(SampleResults results,
                      SampleResults::create(device, steps, shape.result_rows, shape.result_tops));
  HR_ASSIGN_OR_RETURN(DeviceSlots device_slots, DeviceSlots::create(device, shape.slots));
  HR_ASSIGN_OR_RETURN(TokenMasks masks,
                      TokenMasks::create(device, shape.mask_count, shape.slots.vocab_size, steps));
  HR_ASSIGN_OR_RETURN(
      StateStorage states,
      StateStorage::create(device, model.spec(), options.max_num_seqs, options.state_checkpoints));
  auto runner = std::make_unique<DeviceRunner>(
      device, model, std::move(storage), std::move(states), std::move(options), std::move(shape),
      std::move(arena), std::move(results), std::move(device_slots), std::move(masks), link, stage);
  HR_RETURN_IF_ERROR(runner->start(model));
  return std::unique_ptr<DeviceStage>(std::move(runner));
}

}  // namespace

Result<std::unique_ptr<Runner>> create_device_runner(Device& device, const Model& model,
                                                     KvStorage storage, ModelRunnerOptions options,
                                                     RankLink link) {
  HR_ASSIGN_OR_RETURN(std::unique_ptr<Runner> runner,
                      create(device, model, std::move(storage), std::move(options), link, {}));
  return runner;
}

Result<std::unique_ptr<DeviceStage>> create_device_stage(Device& device, const Model& model,
                                                         KvStorage storage,
                                                         ModelRunnerOptions options,
                                                         const StageSeat& stage) {
  return create(device, model, std::move(storage), std::move(options), /*link=*/{}, stage);
}

}  // namespace headrace
