#include "engine/rank_compute.h"

#include <iterator>
#include <utility>

#include "engine/kv_poison.h"
#include "engine/step_scratch.h"
#include "ops/sampling/sample.h"

namespace headrace {
namespace {

constexpr int64_t logit_row_bytes(const Model& model) {
  return model.spec().vocab_size * static_cast<int64_t>(sizeof(float));
}

}  // namespace

int64_t RankCompute::workspace_bytes(const ModelRank& rank, const ModelRunnerOptions& options) {
  const Model& model = *rank.model;
  const int32_t tokens = options.max_num_batched_tokens;
  const int threads = rank.device->pool().thread_count();
  ArenaPlaces places;
  place_hidden(places, model, tokens);
  HeadScratch::place(places, model, kLogitRowsMax, logit_row_bytes(model));
  places.take<std::byte>(
      static_cast<size_t>(sample_workspace_bytes(threads, model.spec().vocab_size)));
  places.take<std::byte>(static_cast<size_t>(
      model.workspace_bytes(tokens, kLogitRowsMax, options.max_model_len, threads)));
  return places.bytes_for(kScratchPartsMax);
}

Result<std::unique_ptr<RankCompute>> RankCompute::create(const ModelRank& rank, KvStorage storage,
                                                         Communicator& group,
                                                         const ModelRunnerOptions& options) {
  HR_ASSIGN_OR_RETURN(Buffer buffer, rank.device->allocate(workspace_bytes(rank, options)));
  HR_ASSIGN_OR_RETURN(StateStorage states,
                      StateStorage::create(*rank.device, rank.model->spec(), options.max_num_seqs,
                                           options.state_checkpoints));
  std::unique_ptr<RankCompute> compute(
      new RankCompute(rank, std::move(storage), std::move(states), group, options.hooks));
  compute->workspace_ = Workspace(std::move(buffer));
  compute->poisons_kv_ = options.poison_kv;
  if (options.poison_kv) {
    CHECK(options.kv_memory == KvMemoryKind::kPaged);
    poison_pool(compute->storage_, options.block_count);
    compute->states_.poison();
  }
  return compute;
}

// What watches ops is told of those of the first rank. The others prefer what it preferred at
// first.
RankCompute::RankCompute(const ModelRank& rank, KvStorage storage, StateStorage states,
                         Communicator& group, const OpHooks* hooks)
    : device_(*rank.device),
      model_(*rank.model),
      storage_(std::move(storage)),
      states_(std::move(states)),
      stream_(device_.create_stream()),
      mesh_{&group, &no_others_, &no_others_} {
  hooks_ = hooks;
  if (hooks == nullptr || group.rank() == 0) return;
  unwatched_hooks_ = *hooks;
  unwatched_hooks_.probe = nullptr;
  unwatched_hooks_.chosen = nullptr;
  hooks_ = &unwatched_hooks_;
}

Result<const StepPlan*> RankCompute::take_pages(const StepPlan& plan) {
  storage_.move_pages(*stream_, plan.stores);
  storage_.move_pages(*stream_, plan.loads);
  if (poisons_kv_) poison_new_pages(storage_, plan);
  HR_ASSIGN_OR_RETURN(const StepPlan* const mapped, storage_.map(plan, *stream_));
  storage_.copy_pages(*stream_, plan.copies);
  states_.begin_step(plan);
  return mapped;
}

void RankCompute::forward(const StepPlan& plan, const ForwardBatch& batch, LayerTaps taps) {
  CHECK(!in_step());
  step_mark_.emplace(workspace_);
  ArenaPlaces places;
  const TensorPart hidden = place_hidden(places, model_, std::ssize(batch.tokens));
  hidden_ = hidden.in(workspace_.take(places.used()));
  OpContext op = context();
  ForwardBatch with_states = batch;
  with_states.states = states_.view();
  model_.embed(op, with_states, hidden_);
  model_.layers(op, with_states, {0, model_.spec().layer_count}, storage_.layers(), hidden_, taps);
  states_.fork(plan);
}

// Gathers the rows' hidden states, so that the head computes these alone, and no row twice.
TensorView RankCompute::logits(std::span<const LogitRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  ArenaPlaces places;
  const HeadScratch scratch = HeadScratch::place(places, model_, count, logit_row_bytes(model_));
  std::byte* const memory = workspace_.take(places.used());
  const TensorView gathered = scratch.gathered.in(memory);
  for (int64_t i = 0; i < count; ++i) {
    stream_->copy(gathered.row(i), hidden_.row(rows[static_cast<size_t>(i)].hidden_row),
                  gathered.row_stride);
  }
  const TensorView logits(scratch.logits.in(memory), DType::kF32,
                          Shape{count, model_.spec().vocab_size});
  OpContext op = context();
  model_.head(op, gathered, logits);
  return logits;
}

}  // namespace headrace
