#include "engine/model_runner.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/code_pages.h"
#include "engine/batch_builder.h"
#include "engine/device_runner.h"
#include "engine/drafter.h"
#include "engine/rank_compute.h"
#include "engine/rank_threads.h"
#include "engine/ranked_runner.h"
#include "engine/sampler.h"
#include "engine/slot_table.h"
#include "engine/stage_rows.h"
#include "engine/staged_device_runner.h"
#include "engine/staged_runner.h"
#include "engine/token_moves.h"
#include "engine/verification.h"
#include "tensor/thread_ranks.h"
#include "tensor/workspace.h"

namespace headrace {
namespace {

// Weights that are packed at use are packed for good between so many steps: each of these packs
// what is left once more, so that with four all steps together pack the model one and a half times;
// and none waits for more than a quarter of it.
constexpr int64_t kPackSteps = 4;
constexpr int64_t kIdlePackBytes = 4 << 20;

// Whether steps are started and go on beside the host: on a GPU, and where one is stood in for.
bool runs_ahead(const Device& device) { return device.kind() != DeviceKind::kCpu; }

class ModelRunner final : public Runner {
 public:
  // What the ranks compute with. The group outlives it.
  using Ranks = std::vector<std::unique_ptr<RankCompute>>;

  ModelRunner(std::span<const ModelRank> models, Ranks ranks, std::unique_ptr<ThreadRanks> group,
              ModelRunnerOptions options, std::unique_ptr<KvPopulation> population,
              std::unique_ptr<Drafter> drafter)
      : model_(*models.front().model),
        options_(std::move(options)),
        group_(std::move(group)),
        ranks_(std::move(ranks)),
        statuses_(ranks_.size()),
        population_(std::move(population)),
        drafter_(std::move(drafter)),
        slots_(options_.max_num_seqs, static_cast<int32_t>(leader().storage().plan().groups.size()),
               pages_for(options_.max_model_len, leader().storage().plan().block_tokens)),
        builder_(leader().storage().plan(), {0, model_.spec().layer_count},
                 options_.keep_logit_rows),
        sampler_(options_.end_ids),
        threads_(static_cast<int>(ranks_.size())) {
    taps_ = options_.taps;
    const DraftFeatures* const read = features();
    if (read == nullptr) return;
    taps_.insert(taps_.end(), read->taps().begin(), read->taps().end());
    builder_.place_too(read->layers());
  }

  Ticket submit_forward(const StepPlan& plan) override;
  void submit_sample(Ticket ticket) override;
  Result<StepResult> wait(Ticket ticket) override;
  bool idle_work() override {
    if (stepped_ && pack_more(kIdlePackBytes)) return true;
    if (population_ != nullptr) population_->idle();
    return false;
  }
  bool takes_constraints() const override { return true; }
  bool takes_rare_samplers() const override { return true; }
  void forget_requests() override { slots_.clear(); }
  bool takes_adapters() const override { return !model_.adapter_sites().empty(); }
  int64_t page_bytes() const override;
  Status read_page(TierPage from, std::span<std::byte> to) override;
  Status write_page(std::span<const std::byte> from, BlockId to) override;

 private:
  RankCompute& leader() const { return *ranks_.front(); }
  const DraftFeatures* features() const {
    return drafter_ == nullptr ? nullptr : drafter_->features();
  }
  // Of all ranks, each on its thread.
  template <class Work>
  void on_ranks(const Work& work) {
    threads_.run([&](int rank) { work(*ranks_[static_cast<size_t>(rank)], rank); });
  }
  Result<const StepPlan*> take_pages(const StepPlan& plan);
  void sample_chunk(std::span<const LogitRow> rows);
  void move_accepted(std::span<const PathMove> moves);
  void release_code_of_prompts(const StepPlan& plan);
  bool pack_more(int64_t bytes_min);

  const Model& model_;  // the first rank's
  const ModelRunnerOptions options_;
  const std::unique_ptr<ThreadRanks> group_;
  const Ranks ranks_;                         // [ranks]
  std::vector<Status> statuses_;              // [ranks] of the pages of the last step
  std::unique_ptr<KvPopulation> population_;  // of its pool; null: none
  const std::unique_ptr<Drafter> drafter_;    // null: no draft
  std::vector<LayerTap> taps_;                // of each step
  SlotTable slots_;
  BatchBuilder builder_;
  Sampler sampler_;
  AcceptanceRule acceptance_{options_.synthetic_acceptance};
  StepResult result_;
  Status status_;  // of memory that could not be mapped; sticky
  uint64_t last_ticket_ = 0;
  bool code_to_release_ = options_.release_code;
  bool to_pack_ = options_.pack_more != nullptr;
  bool stepped_ = false;  // a step has been computed
  RankThreads threads_;   // last: they end before what they use
};

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

// The first rank's plan: block tables are the same on all.
Result<const StepPlan*> ModelRunner::take_pages(const StepPlan& plan) {
  const StepPlan* mapped = nullptr;
  on_ranks([&](RankCompute& compute, int rank) {
    if (rank != 0) compute.device().pool().bind_caller();
    const Result<const StepPlan*> taken = compute.take_pages(plan);
    statuses_[static_cast<size_t>(rank)] = taken.status();
    if (rank == 0 && taken.ok()) mapped = *taken;
  });
  for (const Status& status : statuses_) HR_RETURN_IF_ERROR(status);
  return mapped;
}

Ticket ModelRunner::submit_forward(const StepPlan& plan) {
  flush_denormals_on_this_thread();
  leader().device().pool().bind_caller();
  if (stepped_) pack_more(model_.weight_bytes() / kPackSteps);
  release_code_of_prompts(plan);
  CHECK(!leader().in_step());
  CHECK(plan.token_count <= options_.max_num_batched_tokens);
  if (population_ != nullptr) population_->begin_step(plan, leader().device().pool());
  const Result<const StepPlan*> mapped = take_pages(plan);
  if (!mapped.ok()) {
    status_ = mapped.status();
    return Ticket(++last_ticket_);
  }
  slots_.update(**mapped);
  const StepPlan& proposed = drafter_ == nullptr ? plan : drafter_->propose(plan, slots_);
  const ForwardBatch batch = builder_.build(proposed, slots_);
  if (plan.work.empty()) return Ticket(++last_ticket_);
  stepped_ = true;
  on_ranks([&](RankCompute& compute, int rank) {
    if (rank != 0) flush_denormals_on_this_thread();
    compute.forward(plan, batch, rank == 0 ? LayerTaps(taps_) : LayerTaps());
  });
  if (drafter_ != nullptr) drafter_->keep_features(places_of(batch));
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
  move_accepted(cut_rejected(rows, acceptance_, result_));
  if (drafter_ != nullptr) drafter_->settle(slots_, result_);
  for (const auto& rank : ranks_) rank->poison_rejected(rows, result_, slots_);
  append_accepted(rows, result_, slots_);
  note_ended_forms(rows, options_.end_ids, slots_, result_);
  for (const auto& rank : ranks_) rank->end_step();
}

void ModelRunner::sample_chunk(std::span<const LogitRow> rows) {
  on_ranks([&](RankCompute& compute, int rank) {
    const Workspace::Mark mark(compute.workspace());
    const TensorView logits = compute.logits(rows);
    if (rank != 0) return;
    OpContext op = compute.context();
    sampler_.run(op, rows, logits, slots_, result_);
  });
}

// A draft's layers are its drafter's to move: there tokens lie where they were computed.
void ModelRunner::move_accepted(std::span<const PathMove> moves) {
  for (const PathMove& move : moves) {
    const int32_t known = slots_[move.slot].length();
    const TokenMove tokens{.slot = move.slot, .from = known + move.from, .to = known + move.to};
    for (const auto& rank : ranks_) {
      move_token(rank->storage(), slots_, tokens, {0, model_.spec().layer_count});
      if (features() != nullptr) move_token(rank->storage(), slots_, tokens, features()->layers());
    }
  }
}

Result<StepResult> ModelRunner::wait(Ticket ticket) {
  CHECK(ticket.value == last_ticket_);
  HR_RETURN_IF_ERROR(status_);
  for (const auto& rank : ranks_) HR_RETURN_IF_ERROR(rank->stream().synchronize());
  return std::move(result_);
}

// A page to others is the pages of all ranks, one behind the other.
int64_t ModelRunner::page_bytes() const {
  int64_t bytes = 0;
  for (const auto& rank : ranks_) bytes += rank->storage().plan().page_bytes;
  return bytes;
}

Status ModelRunner::read_page(TierPage from, std::span<std::byte> to) {
  for (const auto& rank : ranks_) {
    const auto bytes = static_cast<size_t>(rank->storage().plan().page_bytes);
    HR_RETURN_IF_ERROR(rank->storage().read_page(rank->stream(), from, to.first(bytes)));
    to = to.subspan(bytes);
  }
  return ok_status();
}

// Each rank writes its own, which is the first touch of its memory.
Status ModelRunner::write_page(std::span<const std::byte> from, BlockId to) {
  std::vector<std::span<const std::byte>> parts;
  for (const auto& rank : ranks_) {
    const auto bytes = static_cast<size_t>(rank->storage().plan().page_bytes);
    parts.push_back(from.first(bytes));
    from = from.subspan(bytes);
  }
  on_ranks([&](RankCompute& compute, int rank) {
    const auto at = static_cast<size_t>(rank);
    if (rank != 0) compute.device().pool().bind_caller();
    statuses_[at] = compute.storage().write_page(compute.stream(), parts[at], to);
  });
  for (const Status& status : statuses_) HR_RETURN_IF_ERROR(status);
  return ok_status();
}

Result<std::unique_ptr<KvMemory>> create_memory(Device& device, const KvPlan& plan,
                                                const ModelRunnerOptions& options) {
  const int32_t padding = runs_ahead(device) ? 1 : 0;
  return KvMemory::create(
      options.kv_memory, device,
      {.page_bytes = plan.page_bytes,
       .page_count = options.block_count + padding,
       .slot_count = options.max_num_seqs,
       .group_count = static_cast<int32_t>(plan.groups.size()),
       .pages_per_sequence = pages_for(options.max_model_len, plan.block_tokens)});
}

// A kind of keys and values to keep rows as, where the head has no layers: the model's own, so that
// they lie in its pages.
LayerKv kind_of_rows(const ModelSpec& model) {
  const auto found = std::ranges::find_if(
      model.kv, [](const LayerKv& kv) { return kv.kv_heads > 0 && !kv.v_aliases_k; });
  if (found != model.kv.end()) return *found;
  return {.kv_heads = 1, .k_dim = 64, .v_dim = 64};
}

}  // namespace

ModelSpec kept_spec(const ModelSpec& model, const ModelRunnerOptions& options) {
  const ModelSpec both =
      options.draft == nullptr ? model : with_draft(model, options.draft->spec());
  if (!options.draft_head) return both;
  if (options.draft == nullptr) return with_rows(both, kind_of_rows(model), model.hidden_size);
  const ModelSpec& head = options.draft->spec();
  return with_rows(both, head.kv.front(), head.hidden_size);
}

int64_t model_runner_bytes(const ModelRank& rank, const KvPlan& plan,
                           const ModelRunnerOptions& options) {
  Device& device = *rank.device;
  const Model& model = *rank.model;
  if (runs_ahead(device)) {
    const bool takes_rows = rank.layers && rank.layers->first > 0;
    return device_runner_bytes(device, model, plan, options) +
           (takes_rows
                ? StageRows::bytes(model, options.max_num_batched_tokens, options.steps_in_flight)
                : 0);
  }
  return RankCompute::workspace_bytes(rank, options) +
         (options.has_draft() ? Drafter::bytes(device, model, options) : 0) +
         StateStorage::bytes(device, model.spec(), options.max_num_seqs, options.state_checkpoints);
}

int64_t model_recording_bytes(const Device& device, const Model& model,
                              const ModelRunnerOptions& options) {
  return runs_ahead(device) ? device_recording_bytes(model, options) : 0;
}

Result<KvPlan> plan_of_rank(const KvPlan& whole, const ModelRank& rank, size_t ranks,
                            KvMemoryKind memory) {
  KvPlan plan = ranks == 1 ? whole : plan_kv_of_rank(whole, rank.model->spec());
  HR_ASSIGN_OR_RETURN(plan.page_bytes,
                      KvMemory::page_bytes_for(memory, *rank.device, plan.page_bytes));
  return plan;
}

Result<KvPlan> plan_of_ranks(const KvPlan& whole, std::span<const ModelRank> ranks,
                             KvMemoryKind memory) {
  KvPlan plan = whole;
  plan.page_bytes = 0;
  for (const ModelRank& rank : ranks) {
    HR_ASSIGN_OR_RETURN(const KvPlan own, plan_of_rank(whole, rank, ranks.size(), memory));
    plan.page_bytes += own.page_bytes;
  }
  return plan;
}

Result<std::unique_ptr<Runner>> create_model_runner(Device& device, const Model& model, KvPlan plan,
                                                    ModelRunnerOptions options) {
  const ModelRank rank{&device, &model};
  return create_model_runner({&rank, 1}, std::move(plan), std::move(options));
}

Result<std::unique_ptr<Runner>> create_model_runner(std::span<const ModelRank> ranks, KvPlan whole,
                                                    ModelRunnerOptions options) {
  const bool split = ranks.size() > 1;
  auto group = std::make_unique<ThreadRanks>(static_cast<int>(ranks.size()));
  ModelRunner::Ranks computes;
  std::vector<KvStorage> of_gpus;
  std::unique_ptr<KvPopulation> population;
  for (const ModelRank& rank : ranks) {
    Device& device = *rank.device;
    device.make_current();
    // Its pages belong to its threads' node.
    const BoundScope bound = device.pool().bind_caller_here();
    HR_ASSIGN_OR_RETURN(KvPlan plan, plan_of_rank(whole, rank, ranks.size(), options.kv_memory));
    HR_ASSIGN_OR_RETURN(std::unique_ptr<KvMemory> memory, create_memory(device, plan, options));
    const bool on_cpu = device.kind() == DeviceKind::kCpu;
    if (on_cpu && options.kv_populate == KvPopulate::kStart) memory->populate(device.pool());
    // Memory of several nodes is left to who uses it first; a contiguous range has no pool, and
    // most of its memory is never used.
    const bool when_idle = on_cpu && !split && options.kv_populate == KvPopulate::kIdle &&
                           memory->pool() != nullptr && !device.pool().several_nodes();
    const KvPoolMemory pool{memory->pool(), plan.page_bytes, options.block_count};
    const ModelSpec& own = rank.model->spec();
    KvStorage storage =
        KvStorage::create(device, kept_spec(own, options), std::move(plan), std::move(memory));
    if (!on_cpu) HR_RETURN_IF_ERROR(storage.add_unpacked(device, options.block_count + 1));
    const size_t index = computes.size() + of_gpus.size();
    if (!options.tiers.empty()) storage.set_tiers(options.tiers[index]);
    if (runs_ahead(device)) {
      of_gpus.push_back(std::move(storage));
      continue;
    }
    if (when_idle) {
      population = std::make_unique<KvPopulation>(pool, [&device] { return device.free_bytes(); });
    }
    Communicator& of_rank = group->rank(static_cast<int>(computes.size()));
    HR_ASSIGN_OR_RETURN(auto compute,
                        RankCompute::create(rank, std::move(storage), of_rank, options));
    computes.push_back(std::move(compute));
  }
  if (of_gpus.size() > 1 && ranks.front().layers) {
    return create_staged_device_runner(ranks, std::move(of_gpus), options);
  }
  if (of_gpus.size() > 1) return create_ranked_runner(ranks, std::move(of_gpus), options);
  if (of_gpus.size() == 1) {
    return create_device_runner(*ranks.front().device, *ranks.front().model,
                                std::move(of_gpus.front()), std::move(options));
  }
  if (ranks.front().layers) {
    return create_staged_runner(ranks, std::move(computes), std::move(group), std::move(options));
  }
  std::unique_ptr<Drafter> drafter;
  if (options.has_draft()) {
    CHECK(!split && options.tiers.empty() && options.kv_memory == KvMemoryKind::kPaged);
    HR_ASSIGN_OR_RETURN(drafter, Drafter::create(*ranks.front().device, *ranks.front().model,
                                                 computes.front()->storage(), options));
  }
  return std::unique_ptr<Runner>(
      std::make_unique<ModelRunner>(ranks, std::move(computes), std::move(group),
                                    std::move(options), std::move(population), std::move(drafter)));
}

}  // namespace headrace
