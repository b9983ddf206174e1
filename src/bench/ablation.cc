#include "bench/ablation.h"

#include <algorithm>
#include <utility>

#include "cli/load_progress.h"
#include "tensor/device.h"

namespace headrace {
namespace {

constexpr Ablation kAblations[] = {
    {"K1", "FlashAttention: tiles that stay in cache, online softmax",
     "scores and probabilities of a head stored as matrices, three passes", flash_attention_cases},
    {"K2", "Flash-Decoding: the keys of a sequence on several threads",
     "all keys of a key head by one thread", flash_decoding_cases},
    {"K3", "flat products: as many rows as there are", "rows padded to 64", flat_product_cases},
    {"K4", "fusion: residual + norm, stacked QKV and gate/up, activations quantised once",
     "separate ops, a product for each matrix", fusion_cases},
    {"K5", "packed rows without padding", "every prompt padded to the longest", packed_rows_cases},
    {"C2", "paged KV: blocks of 16 tokens, taken when they are needed",
     "room for the longest sequence, from the start", paged_memory_cases},
    {"C3", "KV in virtual memory: a contiguous range a sequence, pages mapped ahead",
     "pages found through block tables", virtual_memory_cases},
    {"C5", "prefix cache", "every prompt computed", prefix_cache_cases},
    {"C7", "host memory below the pool", "what the pool has no room for is computed again",
     tier_cases},
    {"S1", "batching: a batch of 8 that starts and ends together", "one request at a time",
     batching_cases},
    {"S2", "continuous batching: requests join and leave at every step",
     "batches that start and end together", continuous_batching_cases},
    {"S3", "chunked prefill under a ceiling (--tpot-target)", "a prompt in one step",
     chunked_prefill_cases},
    {"S4", "multi-level feedback queue (--policy mlfq)", "first come first served",
     feedback_queue_cases},
    {"S5", "predicted lengths (--policy sjf-predicted, packed-predicted)",
     "first come first served; memory for max_tokens reserved", predicted_length_cases},
    {"S6", "targets and tenants (--tpot-target, --policy fair)",
     "prompts first; first come first served", target_cases},
    {"S7", "batch jobs in the background (service_tier flex)", "batch jobs as live requests",
     background_cases},
    {"S8", "asynchronous steps: the next is planned and submitted while one runs",
     "one after the other", overlap_cases},
    {"D4", "expert parallelism: a rank has some of the experts, whole",
     "some columns of every expert", expert_parallel_cases},
    {"X1", "speculation: n-grams, or what --model-draft names (a model, EAGLE or Medusa heads)",
     "a token a step", speculation_cases},
#ifdef HEADRACE_BENCH_ROUTE
    {"D1", "a router that knows whose cache holds a prompt (--policy prefix-aware)",
     "each in turn (--policy round-robin)", routed_cases},
    {"S9", "a stream whose worker dies goes on where it was, by its journal",
     "the request is sent again from its beginning", resumed_cases},
#endif
};

}  // namespace

AblationBench::AblationBench(StackOptions options) : options_(std::move(options)) {
  hooks_.probe = &profile_;
}

Result<ModelStack*> AblationBench::watched() {
  if (watched_ != nullptr) return watched_.get();
  StackOptions options = options_;
  options.batch.max_num_seqs = kAblationSequences;
  options.memory.max_model_len = std::max(options.memory.max_model_len, kAblationModelLen);
  options.engine.scheduler.enable_prefix_caching = false;
  options.runner.graphs = false;
  options.runner.hooks = &hooks_;
  HR_ASSIGN_OR_RETURN(auto stack, load_with_progress(options));
  if (stack->info().on_gpu) {
    return unsupported("kernels are switched on the CPU only so far: add --device cpu");
  }
  watched_ = std::move(stack);
  return watched_.get();
}

Result<ModelStack*> AblationBench::engine(const std::string& name, const Change& change) {
  auto& stack = engines_[name];
  if (stack != nullptr) return stack.get();
  StackOptions options = options_;
  // Engines stand side by side: none may take what is left of a GPU's memory.
  if (options.device.choice != DeviceChoice::kCpu && built_with_cuda() && cuda_device_present() &&
      options.memory.kv_cache_memory_bytes == 0) {
    options.memory.kv_cache_memory_bytes = kAblationKvBytes;
  }
  change(options);
  HR_ASSIGN_OR_RETURN(stack, load_with_progress(options));
  return stack.get();
}

Result<WorkloadResult> AblationBench::run(std::span<const WorkItem> items) {
  HR_ASSIGN_OR_RETURN(ModelStack* const stack, watched());
  profile_.take();
  Result<WorkloadResult> result = run_workload(*stack, items, seed());
  totals_ = profile_.take();
  return result;
}

bool AblationBench::ran(std::string_view kernel) const {
  return std::any_of(totals_.begin(), totals_.end(),
                     [&](const OpTotal& total) { return total.kernel == kernel; });
}

std::span<const Ablation> ablations() { return kAblations; }

const Ablation* find_ablation(std::string_view id) {
  for (const Ablation& ablation : kAblations) {
    if (ablation.id == id) return &ablation;
  }
  return nullptr;
}

}  // namespace headrace
