#include "engine/rank_compute.h"

namespace headrace {
namespace {

// A step has as many tokens as the options say, whose sequences are as long.
ModelPass::Sizes step_sizes(const ModelRunnerOptions& options) {
  return {.tokens = options.max_num_batched_tokens, .kv_length_max = options.max_model_len};
}

}  // namespace

int64_t RankCompute::workspace_bytes(const ModelRank& rank, const ModelRunnerOptions& options) {
  return ModelPass::workspace_bytes(*rank.device, *rank.model, step_sizes(options));
}

// What watches ops is told of those of the first rank. The others prefer what it preferred at
// first.
Result<std::unique_ptr<RankCompute>> RankCompute::create(const ModelRank& rank, KvStorage storage,
                                                         Communicator& group,
                                                         const ModelRunnerOptions& options) {
  HR_ASSIGN_OR_RETURN(StateStorage states,
                      StateStorage::create(*rank.device, rank.model->spec(), options.max_num_seqs,
                                           options.state_checkpoints));
  std::unique_ptr<RankCompute> compute(new RankCompute(std::move(storage), std::move(states)));
  const OpHooks* hooks = options.hooks;
  if (hooks != nullptr && group.rank() != 0) {
    compute->unwatched_hooks_ = *hooks;
    compute->unwatched_hooks_.probe = nullptr;
    compute->unwatched_hooks_.chosen = nullptr;
    hooks = &compute->unwatched_hooks_;
  }
  HR_ASSIGN_OR_RETURN(compute->pass_, ModelPass::create(*rank.device, *rank.model,
                                                        step_sizes(options), &group, hooks));
  if (options.poison_kv) {
    HR_ASSIGN_OR_RETURN(
        compute->kv_poison_,
        KvPoison::create(*rank.device, compute->stream(), compute->storage_, options.block_count));
    compute->states_.poison();
  }
  return compute;
}

Result<const StepPlan*> RankCompute::take_pages(const StepPlan& plan) {
  storage_.move_pages(stream(), plan.stores);
  storage_.move_pages(stream(), plan.stores_ahead);
  storage_.move_pages(stream(), plan.loads);
  if (kv_poison_) kv_poison_->new_pages(stream(), plan);
  HR_ASSIGN_OR_RETURN(const StepPlan* const mapped, storage_.map(plan, stream()));
  storage_.copy_pages(stream(), plan.copies);
  states_.begin_step(plan, stream());
  return mapped;
}

void RankCompute::forward(const StepPlan& plan, const ForwardBatch& batch, LayerTaps taps,
                          const std::optional<ModelPass::Part>& part) {
  ForwardBatch with_states = batch;
  with_states.states = states_.view();
  const auto layers = static_cast<size_t>(pass_->model().spec().layer_count);
  const std::span<const KvLayerView> kv = storage_.layers().first(layers);
  if (part) {
    pass_->forward(with_states, kv, taps, *part);
  } else {
    pass_->forward(with_states, kv, taps);
  }
  states_.fork(plan, stream());
}

}  // namespace headrace
