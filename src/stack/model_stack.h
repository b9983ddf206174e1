// ModelStack: everything between a model file and an Engine that answers, built once by the
// subcommands that need a model. The only place where weights, text and engine are joined.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/sampling_defaults.h"
#include "base/status.h"
#include "base/timeline.h"
#include "engine/batch_shape.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/model_config.h"

namespace headrace {

struct OpHooks;  // ops/op.h

struct StackOptions {
  std::string model;                       // a .gguf file or a Hugging Face folder
  std::string load_format = "auto";        // auto, gguf, safetensors, hf, dummy
  std::string chat_template;               // instead of the model's: a template, or a file's path
  std::string generation_config = "auto";  // sampling where requests say nothing: auto (the
                                           // model's), vllm (none), or a folder
  std::string override_generation_config;  // a JSON object that goes before it
  std::string dtype = "auto";   // auto: the fast path of the file's types; float32: all fp32
  int32_t activation_bits = 8;  // CPU, block types: 8 (and 16 for outliers) or 16 throughout
  std::string device = "auto";  // auto (the GPU if there is one), cpu, cuda, cuda:N
  bool overlap = true;          // GPU: plan and submit a step before the last one's tokens are read
  bool graphs = true;           // GPU: steps that only decode are recorded and replayed
  bool batch_invariant = false;  // GPU and AMX: a row's bits are the same in every batch (on other
                                 // CPUs they always are)
  bool graphs_at_start = false;  // GPU: all recordings before the first request, not beside it
  bool skip_unread_rows = true;  // of the last layer only rows whose logits are read
  int32_t recorded_rows_max = 256;  // GPU: sequences of a recorded step
  bool gemm_trials = true;  // GPU: the library's algorithms are timed before steps are recorded
  bool full_step_trials = false;  // GPU: those of a full step too
  bool split_prompts = true;      // GPU: attention of few prompt rows shares their keys out
  std::vector<std::string> prefer_kernels;  // where they fit, in place of the best
  bool poison_workspace = false;            // GPU, tests: scratch memory is NaN before each step
  double gpu_memory_utilization = 0.9;  // share of the GPU's memory for weights, activations and KV
  int32_t threads = 0;                  // 0 = all CPUs this process may use
  std::string cpu_bind = "auto";        // where CPU threads may run: auto, core, node, none
  std::string quantization = "none";    // CPU: of float matrices on load: none, q8_0, q4_0, q4_k
  std::string packed_cache = "off";  // CPU: packed weights in a file: off, auto (middle sizes), on
  std::string packed_cache_folder;   // empty: "packed" in the user's cache folder
  std::string pack_weights = "start";  // CPU: for good at the start, or behind the first step (use)
  int32_t max_model_len = 0;           // 0 = the model's context; on a CPU at most 8192
  JobWork job;                         // all requests, where they are known before
  int32_t max_num_seqs = 0;            // 0 = chosen (batch_shape.h)
  int32_t max_num_batched_tokens = 0;  // 0 = chosen
  int32_t cpu_max_num_seqs = 64;       // what is chosen on a CPU
  int64_t kv_cache_memory_bytes = 0;  // 0 = CPU: enough for max_num_seqs short or one long request;
                                      // GPU: what gpu_memory_utilization leaves
  int32_t max_queued_requests = 256;
  std::string policy = "auto";  // queue_policy_names(); auto: fcfs, of a job as batch_shape.h says
  bool chunked_prefill = true;
  int64_t max_queued_tokens = 0;   // 0 = no bound
  double max_queue_seconds = 0;    // 0 = no bound
  double tpot_target_seconds = 0;  // 0 = prompt chunks fill every step
  double tpot_over_share = 0;      // of steps that may take longer
  std::string priority_order = "lower-first";
  double background_step_seconds = 0.006;  // of steps with background work beside live requests
  double background_over_share = 0.02;     // of such steps that may take longer
  double background_gap_seconds = 0.006;   // of such steps between live requests; 0: no bound
  std::vector<SloClass> slo_classes = {{"default", 1.0, 0.1}};  // the first is the default
  int32_t promote_after_steps = 2000;
  int32_t mlfq_quantum = 16;                   // tokens
  double crowd_step_ratio = 1.25;              // fair
  double admission_headroom = 1.5;             // of the growth expected of what runs
  double waiting_served_ratio = 1.2;           // waiting-ratio
  int32_t max_waiting_tokens = 20;             // waiting-ratio
  int32_t max_prefill_seqs = 8;                // openppl
  std::string static_ended_rows = "computed";  // static: computed, skipped
  bool enable_prefix_caching = true;
  std::string prefix_cache_eviction = "lru";  // lru, lfu, cost
  double kv_offloading_gib = 0;     // host memory for keys and values that the pool has no room for
  double kv_disk_gib = 0;           // the same on disk, below it
  std::string kv_disk_path;         // the folder; empty: the temporary one
  std::string kv_save_path;         // the prefix cache is kept here between runs; empty: it is not
  std::string kv_memory = "paged";  // paged, virtual, contiguous
  std::string kv_populate = "off";  // CPU: memory of the pool is found: off (as used), idle, start
  std::string preemption_mode = "auto";  // auto: the cheaper; swap; recompute
  uint64_t seed = 0;                     // of dummy weights
  double dummy_sharpness = 1.0;          // their queries and keys times so much
  const OpHooks* op_hooks = nullptr;     // for measurements; outlives the stack
};

// Loading, for a progress line: a stage's name and how much of it is done, in [0, 1].
using LoadProgress = std::function<void(std::string_view stage, double done)>;

struct StackInfo {
  std::string model_name;  // file name without folder and extension
  std::string model_path;
  std::string weight_types;  // "Q4_1 + Q8_0"
  int64_t parameter_count = 0;
  int64_t file_bytes = 0;
  int64_t weight_bytes = 0;  // in memory, packed
  int64_t kv_bytes = 0;      // of the whole pool
  int32_t block_count = 0;
  int32_t block_tokens = 16;
  int32_t max_model_len = 0;
  int32_t threads = 0;
  std::string cpu_features;
  bool on_gpu = false;
  std::string device;       // the GPU's name, or the CPU's
  std::string memory_plan;  // of a GPU: one line; empty on the CPU
  std::string batch_shape;  // one line: sequences, tokens a step, order, and why
  std::string order_label;  // "order of arrival", "lengths declared"
  RequestOrder job_order = RequestOrder::kArrival;  // in which the job's requests are to be sent
  double load_seconds = 0;
};

// Of a GPU: what the plan of the start says is in use, and what the driver says now.
struct GpuMemoryUse {
  int64_t planned_bytes = 0, driver_bytes = 0;
  double difference() const {  // share of the driver's
    return static_cast<double>(planned_bytes - driver_bytes) / static_cast<double>(driver_bytes);
  }
};

class ModelStack {
 public:
  // Errors are one line that names file and field. The calling thread is not kept.
  static Result<std::unique_ptr<ModelStack>> load(const StackOptions& options,
                                                  const LoadProgress& progress = nullptr);
  virtual ~ModelStack() = default;

  virtual Engine& engine() = 0;
  virtual const Tokenizer* tokenizer() const = 0;         // nullptr for a dummy without vocabulary
  virtual const ChatTemplate* chat_template() const = 0;  // nullptr when the file has none
  virtual const ModelConfig& config() const = 0;
  // Of requests that do not say it themselves (--generation-config).
  virtual const SamplingDefaults& sampling() const = 0;
  virtual const StackInfo& info() const = 0;
  // What the start spent its time on. log_first_token() adds the first token of whoever asked.
  virtual Timeline& timeline() = 0;
  virtual std::optional<GpuMemoryUse> gpu_memory() const = 0;  // empty on the CPU. Any thread
};

// Ends the start's timeline and writes it to the log, once.
void log_first_token(ModelStack& stack);

}  // namespace headrace
