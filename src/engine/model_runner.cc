#include "engine/model_runner.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/code_pages.h"
#include "engine/batch_builder.h"
#include "engine/device_runner.h"
#include "engine/sampler.h"
#include "engine/slot_table.h"
#include "engine/step_scratch.h"
#include "engine/verification.h"
#include "tensor/workspace.h"

namespace headrace {
namespace {

// Rows of logits computed at a time: 32 rows of a 49,152-token vocabulary are 6 MB.
constexpr int32_t kLogitRowsMax = 32;

// Weights that are packed at use are packed for good between so many steps: each of these packs
// what is left once more, so that with four all steps together pack the model one and a half times;
// and none waits for more than a quarter of it.
constexpr int64_t kPackSteps = 4;
constexpr int64_t kIdlePackBytes = 4 << 20;

constexpr int64_t logit_row_bytes(int64_t vocabulary) {
  return vocabulary * static_cast<int64_t>(sizeof(float));
}

// Of the workspace of a runner on the CPU.
int64_t workspace_bytes(Device& device, const Model& model, const ModelRunnerOptions& options) {
  const int32_t vocabulary = model.spec().vocab_size, tokens = options.max_num_batched_tokens;
  const int threads = device.pool().thread_count();
  ArenaPlaces places;
  place_hidden(places, model, tokens);
  HeadScratch::place(places, model, kLogitRowsMax, logit_row_bytes(vocabulary));
  places.take<std::byte>(static_cast<size_t>(sample_workspace_bytes(threads, vocabulary)));
  places.take<std::byte>(static_cast<size_t>(
      model.workspace_bytes(tokens, kLogitRowsMax, options.max_model_len, threads)));
  return places.bytes_for(kScratchPartsMax);
}

// Whether steps are started and go on beside the host: on a GPU, and where one is stood in for.
bool runs_ahead(const Device& device) { return device.kind() != DeviceKind::kCpu; }

class ModelRunner final : public Runner {
 public:
  ModelRunner(Device& device, const Model& model, KvStorage storage, ModelRunnerOptions options,
              std::unique_ptr<KvPopulation> population)
      : device_(device),
        model_(model),
        options_(std::move(options)),
        storage_(std::move(storage)),
        population_(std::move(population)),
        stream_(device.create_stream()),
        slots_(options_.max_num_seqs, static_cast<int32_t>(storage_.plan().groups.size()),
               pages_for(options_.max_model_len, storage_.plan().block_tokens)),
        builder_(storage_.plan(), options_.keep_logit_rows && !options_.taps.after_layer),
        sampler_(options_.end_ids) {}

  Status allocate_workspace();

  Ticket submit_forward(const StepPlan& plan) override;
  void submit_sample(Ticket ticket) override;
  Result<StepResult> wait(Ticket ticket) override;
  bool idle_work() override {
    if (stepped_ && pack_more(kIdlePackBytes)) return true;
    if (population_ != nullptr) population_->idle();
    return false;
  }
  int64_t page_bytes() const override { return storage_.plan().page_bytes; }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    return storage_.read_page(*stream_, from, to);
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    return storage_.write_page(*stream_, from, to);
  }

 private:
  OpContext context() { return {device_, *stream_, workspace_, mesh_, options_.hooks}; }
  void sample_chunk(std::span<const LogitRow> rows);
  void release_code_of_prompts(const StepPlan& plan);
  bool pack_more(int64_t bytes_min);
  int64_t hidden_row_bytes() const {
    return int64_t{model_.spec().hidden_size} * dtype_info(model_.activation_dtype()).block_bytes;
  }

  Device& device_;
  const Model& model_;
  const ModelRunnerOptions options_;
  KvStorage storage_;
  std::unique_ptr<KvPopulation> population_;  // of its pool; null: none
  std::unique_ptr<Stream> stream_;
  SingleRank single_rank_;
  Mesh mesh_{&single_rank_, &single_rank_, &single_rank_};
  Workspace workspace_;
  SlotTable slots_;
  BatchBuilder builder_;
  Sampler sampler_;

  // The step in flight.
  std::optional<Workspace::Mark> step_mark_;
  TensorView hidden_;  // [T, D]
  StepResult result_;
  Status status_;  // of memory that could not be mapped; sticky
  uint64_t last_ticket_ = 0;
  bool code_to_release_ = options_.release_code;
  bool to_pack_ = options_.pack_more != nullptr;
  bool stepped_ = false;  // a step has been computed
};

Status ModelRunner::allocate_workspace() {
  HR_ASSIGN_OR_RETURN(Buffer buffer, device_.allocate(workspace_bytes(device_, model_, options_)));
  workspace_ = Workspace(std::move(buffer));
  return ok_status();
}

void ModelRunner::release_code_of_prompts(const StepPlan& plan) {
  if (!code_to_release_ || plan.work.empty() || plan.token_count > std::ssize(plan.work)) return;
  release_code_pages();
  code_to_release_ = false;
}

// Whether something is left to be packed.
bool ModelRunner::pack_more(int64_t bytes_min) {
  if (to_pack_) to_pack_ = options_.pack_more(bytes_min);
  return to_pack_;
}

Ticket ModelRunner::submit_forward(const StepPlan& plan) {
  flush_denormals_on_this_thread();
  device_.pool().bind_caller();
  if (stepped_) pack_more(model_.weight_bytes() / kPackSteps);
  release_code_of_prompts(plan);
  CHECK(!step_mark_.has_value());
  CHECK(plan.token_count <= options_.max_num_batched_tokens);
  if (population_ != nullptr) population_->begin_step(plan, device_.pool());
  storage_.move_pages(*stream_, plan.stores);
  storage_.move_pages(*stream_, plan.loads);
  const Result<const StepPlan*> mapped = storage_.map(plan, *stream_);
  if (!mapped.ok()) {
    status_ = mapped.status();
    return Ticket(++last_ticket_);
  }
  slots_.update(**mapped);
  storage_.copy_pages(*stream_, plan.copies);
  const ForwardBatch batch = builder_.build(plan, slots_);
  if (plan.work.empty()) return Ticket(++last_ticket_);
  stepped_ = true;
  step_mark_.emplace(workspace_);
  ArenaPlaces places;
  const TensorPart hidden = place_hidden(places, model_, std::ssize(batch.tokens));
  hidden_ = hidden.in(workspace_.take(places.used()));
  OpContext op = context();
  model_.embed(op, batch, hidden_);
  model_.layers(op, batch, {0, model_.spec().layer_count}, storage_.layers(), hidden_,
                options_.taps);
  return Ticket(++last_ticket_);
}

void ModelRunner::submit_sample(Ticket ticket) {
  CHECK(ticket.value == last_ticket_);
  result_ = {};
  if (!status_.ok()) return;
  const std::span<const LogitRow> rows = builder_.logit_rows();
  for (size_t first = 0; first < rows.size();) {
    const size_t count = std::min<size_t>(kLogitRowsMax, rows.size() - first);
    sample_chunk(rows.subspan(first, count));
    first += count;
  }
  cut_rejected(rows, result_);
  append_accepted(rows, result_, slots_);
  step_mark_.reset();
}

// Gathers the rows' hidden states, so that the head computes these alone, and no row twice.
void ModelRunner::sample_chunk(std::span<const LogitRow> rows) {
  Workspace::Mark mark(workspace_);
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t vocabulary = model_.spec().vocab_size;
  ArenaPlaces places;
  const HeadScratch scratch =
      HeadScratch::place(places, model_, count, logit_row_bytes(vocabulary));
  std::byte* const memory = workspace_.take(places.used());
  const TensorView gathered = scratch.gathered.in(memory);
  for (int64_t i = 0; i < count; ++i) {
    stream_->copy(gathered.row(i), hidden_.row(rows[static_cast<size_t>(i)].hidden_row),
                  hidden_row_bytes());
  }
  const TensorView logits(scratch.logits.in(memory), DType::kF32, Shape{count, vocabulary});
  OpContext op = context();
  model_.head(op, gathered, logits);
  sampler_.run(op, rows, logits, slots_, result_);
}

Result<StepResult> ModelRunner::wait(Ticket ticket) {
  CHECK(ticket.value == last_ticket_);
  HR_RETURN_IF_ERROR(status_);
  HR_RETURN_IF_ERROR(stream_->synchronize());
  return std::move(result_);
}

}  // namespace

int64_t model_runner_bytes(Device& device, const Model& model, const KvPlan& plan,
                           const ModelRunnerOptions& options) {
  return runs_ahead(device) ? device_runner_bytes(device, model, plan, options)
                            : workspace_bytes(device, model, options);
}

int64_t model_recording_bytes(const Device& device, const Model& model,
                              const ModelRunnerOptions& options) {
  return runs_ahead(device) ? device_recording_bytes(model, options) : 0;
}

Result<std::unique_ptr<Runner>> create_model_runner(Device& device, const Model& model, KvPlan plan,
                                                    ModelRunnerOptions options) {
  const bool ahead = runs_ahead(device);
  HR_ASSIGN_OR_RETURN(plan.page_bytes,
                      KvMemory::page_bytes_for(options.kv_memory, device, plan.page_bytes));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<KvMemory> memory,
                      KvMemory::create(options.kv_memory, device,
                                       {.page_bytes = plan.page_bytes,
                                        .page_count = options.block_count + (ahead ? 1 : 0),
                                        .slot_count = options.max_num_seqs,
                                        .group_count = static_cast<int32_t>(plan.groups.size()),
                                        .pages_per_sequence =
                                            pages_for(options.max_model_len, plan.block_tokens)}));
  const bool on_cpu = device.kind() == DeviceKind::kCpu;
  if (on_cpu && options.kv_populate == KvPopulate::kStart) memory->populate(device.pool());
  // Memory of several nodes is left to who uses it first; a contiguous range has no pool, and most
  // of its memory is never used.
  const bool when_idle = on_cpu && options.kv_populate == KvPopulate::kIdle &&
                         memory->pool() != nullptr && !device.pool().several_nodes();
  const KvPoolMemory pool{memory->pool(), plan.page_bytes, options.block_count};
  KvStorage storage = KvStorage::create(device, model.spec(), std::move(plan), std::move(memory));
  storage.set_tiers(options.tiers);
  if (ahead) {
    return create_device_runner(device, model, std::move(storage), std::move(options));
  }
  std::unique_ptr<KvPopulation> population;
  if (when_idle) {
    population = std::make_unique<KvPopulation>(pool, [&device] { return device.free_bytes(); });
  }
  auto runner = std::make_unique<ModelRunner>(device, model, std::move(storage), std::move(options),
                                              std::move(population));
  HR_RETURN_IF_ERROR(runner->allocate_workspace());
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace headrace
