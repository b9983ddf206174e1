#include "stack/memory_planning.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/memory_plan.h"
#include "kv/kv_demand.h"
#include "ops/ranks/peer_ranks.h"
#include "stack/compute_choice.h"
#include "stack/kv_format_choice.h"
#include "stack/tier_planning.h"

namespace headrace {
namespace {

// Without --kv-cache-memory-bytes the pool holds this many tokens for each slot (and at least one
// sequence of max_model_len), within a quarter of the memory that is free.
constexpr int64_t kTokensPerSlot = 1024;
// Pages that hold nothing are bookkeeping alone: so many, 16 million tokens' worth, are 128 MiB.
constexpr int64_t kPlacesMax = 1 << 20;
// Of their sequences, whose length costs block tables alone.
constexpr int32_t kPlacesLenDefaultMax = 131072;
// On a CPU, and where a sequence's whole context is reserved.
constexpr int32_t kModelLenDefaultMax = 8192;

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

int64_t tensor_bytes(const WeightSource& weights) {
  int64_t bytes = 0;
  for (const std::string_view name : weights.names()) bytes += weights.info(name)->bytes;
  return bytes;
}

// Of the weights once they are packed, from below.
int64_t packed_bytes(const LoadOptions& options, const ModelWeights& weights) {
  int64_t bytes = tensor_bytes(*weights.weights);
  if (weights.weight_types.starts_with("NVFP4")) bytes = bytes * 17 / 9;  // as Q8_0
  if (!options.quantise_to) return bytes;
  const int64_t whole_blocks = weights.parameter_count / 256 * 256;
  return std::min(bytes, row_bytes(*options.quantise_to, whole_blocks).value_or(bytes));
}

// What a rank keeps for the others.
int64_t group_bytes(size_t ranks) {
  return ranks == 1 ? 0 : PeerRanks::bytes(static_cast<int>(ranks));
}

// Of the slots that adapters get on a GPU, about; before the load, which knows their matrices.
int64_t adapter_bytes_about(const AdapterOptions& options, const ModelConfig& config) {
  if (!options.wanted()) return 0;
  const int64_t queries = int64_t{config.heads} * config.head_dim;
  const int64_t keys = int64_t{config.kv_heads} * config.head_dim;
  const int64_t widths = 6 * int64_t{config.hidden} + 2 * queries + 2 * keys +
                         3 * (config.hidden + int64_t{config.ffn});
  // Those of the start alone have slots of their largest rank, which their files say.
  constexpr int32_t kRankOfMost = 16;
  const int32_t rank = options.enabled ? options.rank_max : std::min(options.rank_max, kRankOfMost);
  return int64_t{2} * adapters_max(options) * rank * config.layers * widths;
}

// The model's whole context where there is memory for a sequence of it: on a GPU, as engines on
// GPUs do. What is asked for is taken at its word; plan_pool() says where it does not fit.
int32_t default_model_len(const StackOptions& options, const ModelWeights& weights,
                          const Device& device, int32_t layers_most) {
  const ModelConfig& config = weights.config;
  const MemoryOptions& memory = options.memory;
  const int32_t least = std::min(config.context_length, kModelLenDefaultMax);
  if (device.kind() != DeviceKind::kCuda || !options.engine.scheduler.chunked_prefill ||
      options.runner.kv_memory == KvMemoryKind::kContiguous) {
    return least;
  }
  if (!any_attends(config)) return std::min(config.context_length, kPlacesLenDefaultMax);
  const int64_t ranks = options.device.tensor_parallel_size;
  const int64_t stages = options.device.pipeline_parallel_size;
  const int64_t layers = layers_most > 0 ? layers_most : config.layers;
  const int64_t kv_heads = (config.kv_heads + ranks - 1) / ranks;  // of the rank that has most
  const int64_t layer_bytes = int64_t{2} * 2 * kv_heads * config.head_dim;
  int64_t token_bytes = layers * layer_bytes;
  if (const auto small = small_kv_format(options.kv_formats)) {
    const int64_t scales = *small == KvFormat::kFp8 ? 0 : int64_t{2} * 2 * kv_heads;
    token_bytes = layers * (layer_bytes / 2 + scales) + layer_bytes;  // and a layer unpacked
  }
  const auto usable = static_cast<int64_t>(static_cast<double>(device.free_bytes()) *
                                           memory.gpu_memory_utilization);
  // 16 bits each at most; packed blocks may be an eighth larger than the file's.
  const int64_t sixteen_bits = 2 * weights.parameter_count;
  const bool unpacks = config.experts.count > 0
                           ? !packs_experts(options.load, weights, device.traits(), ranks)
                           : unpacks_blocks(options.load, weights, device.traits());
  const int64_t weight_bytes =
      unpacks ? sixteen_bits : std::min(sixteen_bits, packed_bytes(options.load, weights) * 9 / 8);
  const int64_t kv_bytes = memory.kv_cache_memory_bytes > 0
                               ? memory.kv_cache_memory_bytes
                               : usable - weight_bytes / (ranks * stages) - kGpuRunnerBytes -
                                     group_bytes(static_cast<size_t>(ranks)) -
                                     adapter_bytes_about(options.adapters, config);
  // A draft, which is read later, has weights and keys and values too; a head's are a few layers'.
  const ProposalMethod method = options.engine.scheduler.proposals.method;
  const double share = options.draft_model.empty() ? 1 : is_head(method) ? 0.8 : 0.5;
  const int64_t fits = static_cast<int64_t>(share * static_cast<double>(kv_bytes / token_bytes)) /
                       kKvBlockTokens * kKvBlockTokens;
  return static_cast<int32_t>(std::clamp<int64_t>(fits, least, config.context_length));
}

int64_t pages_max(const KvPlan& kv) { return kv.keeps_tokens() ? kPoolPagesMax : kPlacesMax; }

// What is left of a GPU's memory, of one of so many ranks.
Result<PoolPlan> plan_gpu_pool(const MemoryOptions& options, const KvPlan& kv,
                               const ModelRunnerOptions& runner, const ModelRank& rank,
                               size_t ranks) {
  Device& device = *rank.device;
  const Model& model = *rank.model;
  const int64_t pages_min =
      peak_pages(kv.groups, runner.max_model_len, runner.max_num_batched_tokens) + 1;
  HR_ASSIGN_OR_RETURN(
      const MemoryPlan plan,
      plan_memory(
          {.total_bytes = device.traits().memory_bytes,
           .free_bytes = device.free_bytes(),
           .weight_bytes =
               model.weight_bytes() + (runner.draft == nullptr ? 0 : runner.draft->weight_bytes()),
           .adapter_bytes = runner.adapter_slots == nullptr ? 0 : runner.adapter_slots->bytes(),
           .runner_bytes =
               model_runner_bytes(rank, kv, runner) + group_bytes(rank.layers ? 1 : ranks),
           .recording_bytes = model_recording_bytes(device, model, runner),
           .utilization = options.gpu_memory_utilization,
           .kv_bytes_wanted = options.kv_cache_memory_bytes,
           .page_bytes = kv.page_bytes,
           .unpacked_page_bytes = kv.unpacked_page_bytes(),
           .pages_min = pages_min,
           .pages_max = std::max(pages_min, pages_max(kv))}));
  const PoolPlan pool{
      .block_count = static_cast<int32_t>(plan.page_count - 1),  // one is the runner's, for padding
      .line = plan.to_string(),
      .planned_free_bytes = plan.free_after_bytes};
  log_info("{}: {}", device.traits().name, pool.line);
  return pool;
}

// Of ranks the smallest pool: they keep the same pages.
Result<PoolPlan> plan_gpu_pools(const MemoryOptions& options, const KvPlan& whole,
                                const ModelRunnerOptions& runner,
                                std::span<const ModelRank> ranks) {
  PoolPlan least;
  for (const ModelRank& rank : ranks) {
    HR_ASSIGN_OR_RETURN(const KvPlan own,
                        plan_of_rank(whole, rank, ranks.size(), runner.kv_memory));
    HR_ASSIGN_OR_RETURN(PoolPlan pool, plan_gpu_pool(options, own, runner, rank, ranks.size()));
    if (&rank == ranks.data() || pool.block_count < least.block_count) least = std::move(pool);
  }
  ranks.front().device->make_current();
  return least;
}

// The CPU's pool is as large as asked, or as the defaults and the machine say.
Result<PoolPlan> plan_host_pool(const StackOptions& options, const KvPlan& kv,
                                const ModelRunnerOptions& runner,
                                std::span<const ModelRank> ranks) {
  const auto groups = static_cast<int64_t>(kv.groups.size());
  const int64_t tokens =
      kv.keeps_tokens()
          ? std::max<int64_t>(runner.max_model_len, kTokensPerSlot * runner.max_num_seqs)
          : int64_t{2} * runner.max_model_len * runner.max_num_seqs;  // and as many in prefixes
  const int64_t pages = (tokens + kKvBlockTokens - 1) / kKvBlockTokens * groups;
  int64_t free_bytes = ranks.front().device->free_bytes(), runner_bytes = 0;
  for (const ModelRank& rank : ranks) {
    free_bytes -= rank.model->unpacked_bytes();
    runner_bytes += model_runner_bytes(rank, kv, runner);
  }
  HR_ASSIGN_OR_RETURN(const int64_t planned,
                      plan_host_pages({.free_bytes = free_bytes,
                                       .runner_bytes = runner_bytes,
                                       .keeps_states = runner.state_checkpoints > 0,
                                       .tier_bytes = tier_bytes(options.tiers),
                                       .kv_bytes_wanted = options.memory.kv_cache_memory_bytes,
                                       .kv_bytes_default = pages * kv.page_bytes,
                                       .page_bytes = kv.page_bytes,
                                       .pages_min = groups,
                                       .pages_max = pages_max(kv)}));
  return PoolPlan{.block_count = static_cast<int32_t>(planned)};
}

}  // namespace

Status check_load_memory(const StackOptions& options, const ModelWeights& weights,
                         const Device& device, bool packed_in_file) {
  if (device.kind() == DeviceKind::kCuda) return ok_status();
  const int64_t needed = packed_in_file ? 0 : packed_bytes(options.load, weights);
  const int64_t free = device.free_bytes();
  const int64_t in_tiers = tier_bytes(options.tiers);
  const int64_t kv_bytes = options.memory.kv_cache_memory_bytes + in_tiers;
  if (needed + kv_bytes <= free) return ok_status();
  if (needed <= free) {
    return exhausted(fmt::format(
        "{}: beside {:.1f} GiB of weights {:.1f} GiB are asked for keys and values, and {:.1f} "
        "GiB are free: lower {}",
        options.model, gib(needed), gib(kv_bytes), gib(free),
        in_tiers == 0                               ? "--kv-cache-memory-bytes"
        : options.memory.kv_cache_memory_bytes == 0 ? "--kv-offloading-size"
                                                    : "--kv-cache-memory-bytes, "
                                                      "--kv-offloading-size"));
  }
  return exhausted(fmt::format(
      "{}: its weights need {:.1f} GiB of memory, and {:.1f} GiB are free: use a file with fewer "
      "bits a weight{}",
      options.model, gib(needed), gib(free),
      has_float_matrices(weights) && !options.load.quantise_to ? ", or --quantization q4_0" : ""));
}

Result<int32_t> plan_model_len(const StackOptions& options, const ModelWeights& weights,
                               const Device& device, int32_t layers_most) {
  const int32_t wanted = options.memory.max_model_len;
  if (wanted == 0) return default_model_len(options, weights, device, layers_most);
  if (wanted > weights.config.context_length_max) {
    return invalid_argument(fmt::format("--max-model-len {} is more than the model's context of {}",
                                        wanted, weights.config.context_length_max),
                            "max_model_len");
  }
  return wanted;
}

Result<PoolPlan> plan_pool(const StackOptions& options, const KvPlan& kv,
                           const ModelRunnerOptions& runner, std::span<const ModelRank> ranks) {
  const ModelRank& first = ranks.front();
  if (first.device->kind() == DeviceKind::kCuda) {
    return plan_gpu_pools(options.memory, kv, runner, ranks);
  }
  return plan_host_pool(options, kv, runner, ranks);
}

int32_t sequences_at_once(int32_t wanted, KvMemoryKind kind, int32_t block_count, int32_t model_len,
                          const KvPlan& kv) {
  if (kind != KvMemoryKind::kContiguous) return wanted;
  const int32_t pages = (model_len + kKvBlockTokens - 1) / kKvBlockTokens;
  const int32_t fit = block_count / (pages * static_cast<int32_t>(kv.groups.size()));
  return std::clamp(fit, 1, wanted);
}

}  // namespace headrace
