// StackOptions: what a ModelStack is made of. Each part is what one library takes, whole, with its
// defaults where that library declares it. A flag is a line that binds a field of a part
// (cli/model_flags.cc, cli/engine_flags.cc); nothing between copies it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/named.h"
#include "engine/batch_shape.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/shard.h"
#include "ops/attention/kv_format.h"
#include "stack/adapter_loading.h"
#include "stack/load_options.h"
#include "stack/pooling_options.h"
#include "tensor/cpu_topology.h"

namespace headrace {

// The text side of a model, and how requests that say nothing of sampling are sampled.
struct TextOptions {
  std::string chat_template;               // instead of the model's: a template, or a file's path
  std::string generation_config = "auto";  // sampling where requests say nothing: auto (the
                                           // model's), vllm (none), or a folder
  std::string override_generation_config;  // a JSON object that goes before it
};

inline constexpr Named<CpuBinding> kCpuBindings[] = {
    {"auto", CpuBinding::kAuto},
    {"core", CpuBinding::kCore},
    {"node", CpuBinding::kNode},
    {"none", CpuBinding::kNone},
};

enum class DeviceChoice : uint8_t {
  kAuto,  // the GPU if there is one
  kCpu,
  kGpu,
};

inline constexpr Named<std::optional<ShardSums>> kShardSums[] = {
    {"auto", std::nullopt},
    {"gather", ShardSums::kGather},
    {"reduce", ShardSums::kReduce},
};

struct DeviceOptions {
  DeviceChoice choice = DeviceChoice::kAuto;
  // GPUs by their numbers: the first, or of ranks the first ones, the rest counted on from the
  // last.
  std::vector<int> gpus = {0};
  int32_t threads = 0;  // 0 = all CPUs this process may use
  CpuBinding cpu_bind = CpuBinding::kAuto;
  bool batch_invariant = false;  // GPU and AMX: a row's bits are the same in every batch (on other
                                 // CPUs they always are)
  // Ranks that a model is split over: a GPU each; on a CPU the threads are shared out.
  int32_t tensor_parallel_size = 1;
  // Nothing: by the device, on a CPU what keeps bits, on GPUs what is fast.
  std::optional<ShardSums> tensor_parallel_sums;
  bool enable_expert_parallel = false;  // a rank has experts, not columns of every one
  // CPU: stages that a model's layers are shared out over, each with some of the threads.
  int32_t pipeline_parallel_size = 1;
  bool overlap = true;  // GPU: plan and submit a step before the last one's tokens are read

  // Parts of the model, each on a device of its own.
  int32_t part_count() const { return tensor_parallel_size * pipeline_parallel_size; }
};

// Sequences, tokens a step and order: 0 and "auto" are chosen by the machine and the work
// (stack/batch_choice.h) and given to the scheduler.
struct BatchShapeOptions {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  std::string policy = "auto";                                 // or one of queue_policy_names()
  int32_t cpu_max_num_seqs = SchedulerOptions().max_num_seqs;  // what is chosen on a CPU
  JobWork job;  // all requests, where they are known before
};

struct MemoryOptions {
  int32_t max_model_len = 0;            // 0 = the model's context; on a CPU at most 8192
  double gpu_memory_utilization = 0.9;  // share of the GPU's memory for weights, activations and KV
  int64_t kv_cache_memory_bytes = 0;  // 0 = CPU: enough for max_num_seqs short or one long request;
                                      // GPU: what gpu_memory_utilization leaves
  // States of sequences that are saved, of models whose layers keep such; -1: by the memory.
  int32_t state_checkpoints = -1;
};

// What keys and values are kept as; auto: on a CPU F16, or F32 where all is computed so, on a GPU
// the type of the model's activations. q8_0 is what llama.cpp calls int8, whose scales are F16.
inline constexpr Named<std::optional<KvFormat>> kKvFormats[] = {
    {"auto", std::nullopt},      {"int8", KvFormat::kInt8},     {"q8_0", KvFormat::kInt8},
    {"f16", KvFormat::kF16},     {"float16", KvFormat::kF16},   {"fp16", KvFormat::kF16},
    {"bf16", KvFormat::kBF16},   {"bfloat16", KvFormat::kBF16}, {"f32", KvFormat::kF32},
    {"float32", KvFormat::kF32}, {"fp8", KvFormat::kFp8},       {"fp8_e4m3", KvFormat::kFp8},
    {"int4", KvFormat::kInt4},   {"q4_0", KvFormat::kInt4},
};
struct KvFormatOptions {
  std::optional<KvFormat> both;
  std::optional<KvFormat> k, v;  // before `both`
};

// What is kept below the pool.
enum class PreemptionMode : uint8_t {
  kAuto,       // what is cheaper to load than to compute
  kSwap,       // everything
  kRecompute,  // nothing
};
inline constexpr Named<PreemptionMode> kPreemptionModes[] = {
    {"auto", PreemptionMode::kAuto},
    {"swap", PreemptionMode::kSwap},
    {"recompute", PreemptionMode::kRecompute},
};

struct TierOptions {
  double host_gib = 0;    // host memory for keys and values that the pool has no room for
  double disk_gib = 0;    // the same on disk, below it
  std::string disk_path;  // the folder; empty: the temporary one
  PreemptionMode mode = PreemptionMode::kAuto;
};

struct StackOptions {
  std::string model;        // a .gguf file or a Hugging Face folder
  std::string draft_model;  // another that proposes tokens for it; empty: none
  TextOptions text;
  DeviceOptions device;
  LoadOptions load;
  PoolingOptions pooling;
  AdapterOptions adapters;
  BatchShapeOptions batch;
  MemoryOptions memory;
  KvFormatOptions kv_formats;
  TierOptions tiers;
  // What the stack finds out itself is filled in: sizes of batches, context and pool, groups, ends,
  // tiers.
  EngineOptions engine;
  ModelRunnerOptions runner;
  std::vector<std::string> prefer_kernels;  // where they fit, in place of the best
};

}  // namespace headrace
