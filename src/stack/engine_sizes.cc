#include "stack/engine_sizes.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/rng.h"
#include "kv/kv_demand.h"
#include "stack/kv_format_choice.h"
#include "stack/model_device.h"
#include "stack/state_planning.h"
#include "stack/tier_planning.h"
#include "weights/file_identity.h"

namespace headrace {
namespace {

std::string format_text(const KvFormats& formats) {
  return fmt::format("{}/{}", kv_format_name(formats.k), kv_format_name(formats.v));
}

std::string_view device_text(DeviceKind device) {
  constexpr std::string_view kNames[] = {"cpu", "gpu", "null"};
  return kNames[static_cast<size_t>(device)];
}

// Rotations of these two kinds depend on the context that is served.
std::string rotation_text(const ModelConfig& config) {
  const bool by_context = config.rope_scaling.kind == RopeScaling::Kind::kDynamic ||
                          config.rope_scaling.kind == RopeScaling::Kind::kLongRope;
  return by_context ? fmt::format(" of {} tokens", config.served_length) : "";
}

// What saved keys and values depend on. Of one group as it was before there was a choice of
// layouts.
std::string kv_fingerprint(const LoadedModel& loaded, const KvPlan& kv, DeviceKind device,
                           uint64_t arithmetic, const DeviceOptions& options) {
  const ModelWeights& weights = loaded.weights;
  const std::string layout = kv.groups.size() == 1 ? "1" : kv.layout();
  const std::string text = fmt::format(
      "{} {} {:016x} {:016x} {} {} {} {} {} {}{}", loaded.name, weights.file_bytes, weights.content,
      arithmetic, weights.weight_types, weights.parameter_count, format_text(kv.formats),
      kv.block_tokens, layout, key_layout(device) == KeyLayout::kTransposed ? "transposed" : "rows",
      rotation_text(weights.config));
  if (options.pipeline_parallel_size > 1) {
    // Which layers each has follows from their number and this rule.
    return fmt::format("{} {} stages by what they read", text, options.pipeline_parallel_size);
  }
  if (options.tensor_parallel_size == 1) return text;
  return fmt::format("{} {} {}{}", text, options.tensor_parallel_size,
                     name_of(kShardSums, std::optional(shard_sums(options, device))),
                     options.enable_expert_parallel ? " experts" : "");
}

// Which pages of tokens hold the same bits, beside what a request says itself.
uint64_t arithmetic_of(const LoadedModel& loaded, const KvPlan& kv, DeviceKind device,
                       const LoadOptions& options) {
  const std::string text =
      arithmetic_text(kv.formats, loaded.model.activation_dtype(), device, options);
  const uint64_t id = checksum64(std::as_bytes(std::span(text)));
  if (options.architecture_map.empty()) return id;
  return mix64(id ^ files_sample({options.architecture_map}));
}

std::vector<TokenId> end_ids(const LoadedModel& loaded) {
  std::vector<TokenId> ids = loaded.weights.config.end_ids;
  if (loaded.tokenizer != nullptr) {
    for (TokenId id : loaded.tokenizer->vocab().end_ids) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(ids, [&](TokenId id) { return id >= loaded.weights.config.vocab; });
  return ids;
}

// Elements of matrices of experts, of all layers.
double expert_elements(const ModelConfig& config) {
  double layers = 0;
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    if (config.experts.in_layer(layer)) ++layers;
  }
  return layers * config.experts.count * 3.0 * config.hidden * config.experts.width;
}

// Devices share the matrices, and where they are stages the layers' keys, too. A rank's model has
// its own heads, and its own bytes.
ModelWork estimated_work(const LoadedModel& loaded, const KvPlan& kv, KeyLayout keys,
                         double stages) {
  const ModelConfig& config = loaded.weights.config;
  const auto devices = static_cast<double>(std::max<size_t>(loaded.ranks.size(), 1));
  const auto all = static_cast<double>(loaded.weights.parameter_count);
  const double table = static_cast<double>(config.vocab) * config.hidden;
  const double experts = std::min(expert_elements(config), all);
  const double share = config.experts.count > 0
                           ? static_cast<double>(config.experts.used) / config.experts.count
                           : 0;
  // The table of the embedding is read by rows alone.
  const double rest = std::max(0.0, all - experts - (config.tied_embeddings ? 1 : 2) * table);
  const double bytes = static_cast<double>(loaded.model.weight_bytes()) / std::max(all, 1.0);
  ModelWork work{.operations_per_row = 2 * rest / devices,
                 .operations_per_logits = 2 * table / devices,
                 .weight_bytes = bytes * rest,
                 .output_bytes = bytes * table,
                 .experts = {.operations_per_row = 2 * experts * share / devices,
                             .bytes = bytes * experts,
                             .used_share = share}};
  const ModelSpec& spec = loaded.model.spec();
  for (const LayerKv& layer : spec.kv) {
    if (layer.kv_heads == 0) continue;
    const KvLayerView view = kv_view(layer, kv.formats, keys, kv.block_tokens);
    const auto page = static_cast<double>(layer_part_bytes(view));
    auto like = std::find_if(work.attention.begin(), work.attention.end(),
                             [&](const auto& known) { return known.window == layer.window; });
    if (like == work.attention.end()) {
      like = work.attention.insert(like, ModelWork::Attention{.window = layer.window});
    }
    like->operations_per_key +=
        2.0 * spec.query_heads * (layer.k_dim + layer.v_dim) / layer.rate / stages;
    like->key_bytes += page / kv.block_tokens / stages;
  }
  return work;
}

// Of the model, before there is a pool.
void fill_in_model(const LoadedModel& loaded, const KvPlan& kv, Device& device,
                   StackOptions& options) {
  SchedulerOptions& scheduler = options.engine.scheduler;
  options.engine.vocab_size = loaded.model.spec().vocab_size;
  options.engine.arithmetic = arithmetic_of(loaded, kv, device.kind(), options.load);
  options.engine.kv_fingerprint =
      kv_fingerprint(loaded, kv, device.kind(), options.engine.arithmetic, options.device);
  options.engine.model_work =
      estimated_work(loaded, kv, key_layout(device.kind()), options.device.pipeline_parallel_size);
  scheduler.groups = kv.groups;
  scheduler.end_ids = end_ids(loaded);
  scheduler.max_model_len = loaded.weights.config.served_length;
  // A batch can never be larger than every slot's whole context.
  scheduler.max_num_batched_tokens = static_cast<int32_t>(std::min<int64_t>(
      scheduler.max_num_batched_tokens, int64_t{scheduler.max_model_len} * scheduler.max_num_seqs));
  const bool ahead = device.kind() == DeviceKind::kCuda && options.device.overlap;
  const int32_t stages = options.device.pipeline_parallel_size;
  scheduler.steps_in_flight_max = ahead ? stages - 1 + kDeviceStepsInFlight : stages;
  scheduler.cohorts = {stages, ahead && stages > 1 ? kFullStepSequences : 0};
  // A GPU's masks are of rows with nothing proposed before them.
  if (device.kind() == DeviceKind::kCuda) scheduler.proposals.jump_ahead = false;
  const ModelSpec& spec = loaded.model.spec();
  if (state_entry_bytes(spec) == 0) return;
  scheduler.state_checkpoints =
      plan_state_checkpoints(options, spec, scheduler.max_num_seqs, device);
}

// A request that the pool can never hold is refused, so that none is promised.
void fit_length_to_pool(SchedulerOptions& scheduler) {
  const auto fits = [&](int32_t length) {
    return peak_pages(scheduler.groups, length, scheduler.max_num_batched_tokens) <=
           scheduler.block_count;
  };
  if (fits(scheduler.max_model_len)) return;
  int32_t low = 1;  // fits, or nothing does
  for (int32_t high = scheduler.max_model_len; high - low > 1;) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  log_warning(
      "keys and values of {} tokens are more than the pool holds: a request may have {} "
      "(--kv-cache-memory-bytes, --max-model-len)",
      scheduler.max_model_len, low);
  scheduler.max_model_len = low;
}

// The runner has room for what the scheduler may plan.
void fill_in_runner(const SchedulerOptions& scheduler, ModelRunnerOptions& runner) {
  runner.steps_in_flight = std::max(kDeviceStepsInFlight, scheduler.steps_in_flight_max);
  runner.max_num_seqs = scheduler.max_num_seqs;
  runner.max_num_batched_tokens = scheduler.max_num_batched_tokens;
  runner.proposals = scheduler.proposals.method != ProposalMethod::kNone;
  runner.synthetic_acceptance = scheduler.proposals.synthetic_acceptance;
  runner.max_model_len = scheduler.max_model_len;
  runner.block_count = scheduler.block_count;
  runner.state_checkpoints = scheduler.state_checkpoints.value_or(0);
  runner.end_ids = scheduler.end_ids;
}

}  // namespace

std::string arithmetic_text(const KvFormats& kept, DType activations, DeviceKind device,
                            const LoadOptions& options) {
  return fmt::format("{}, kept {}, of {} on {}, activations of {} bits, quantised to {}, blocks {}",
                     dtype_name(activations), format_text(kept),
                     options.dtype ? dtype_name(*options.dtype) : "the file's types",
                     device_text(device), options.activation_bits,
                     options.quantise_to ? dtype_name(*options.quantise_to) : "nothing",
                     name_of(kBlockWeights, options.block_weights));
}

Result<PoolPlan> fill_in_sizes(const LoadedModel& loaded, const KvPlan& kv, Device& device,
                               StackOptions& options) {
  SchedulerOptions& scheduler = options.engine.scheduler;
  ModelRunnerOptions& runner = options.runner;
  fill_in_model(loaded, kv, device, options);
  fill_in_runner(scheduler, runner);
  HR_ASSIGN_OR_RETURN(PoolPlan pool, plan_pool(options, kv, runner, loaded.ranks));
  scheduler.block_count = pool.block_count;
  fit_length_to_pool(scheduler);
  scheduler.max_num_seqs = sequences_at_once(scheduler.max_num_seqs, runner.kv_memory,
                                             pool.block_count, scheduler.max_model_len, kv);
  fill_in_runner(scheduler, runner);
  HR_ASSIGN_OR_RETURN(runner.tiers, create_tiers(options, kv, loaded.ranks));
  HR_ASSIGN_OR_RETURN(scheduler.tiers, tier_specs(runner.tiers, options.tiers.mode, device));
  if (runner.kv_memory == KvMemoryKind::kContiguous) {
    scheduler.allocation = KvAllocation::kReserveMax;
    scheduler.enable_prefix_caching = false;  // which needs KvAllocation::kPaged
  }
  return pool;
}

}  // namespace headrace
