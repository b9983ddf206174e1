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
#include "engine/adapter_bank.h"
#include "engine/engine.h"
#include "stack/model_source.h"
#include "stack/stack_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/model_config.h"

namespace headrace {

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
  int64_t state_bytes = 0;   // of all states and checkpoints; 0: the model keeps none
  int32_t block_count = 0;
  int32_t block_tokens = 16;
  int32_t max_model_len = 0;
  int32_t threads = 0;
  std::string cpu_features;
  bool on_gpu = false;
  std::string device;       // the GPU's name, or the CPU's
  std::string memory_plan;  // one line of a GPU, or of a CPU where layers keep states; or empty
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
  // Errors are one line that names file and field. The calling thread is not kept. `source`: the
  // model where it is open already, or null.
  static Result<std::unique_ptr<ModelStack>> load(const StackOptions& options,
                                                  const LoadProgress& progress = nullptr,
                                                  std::unique_ptr<ModelSource> source = nullptr);
  virtual ~ModelStack() = default;

  virtual Engine& engine() = 0;
  virtual const Tokenizer* tokenizer() const = 0;         // nullptr for a dummy without vocabulary
  virtual const ChatTemplate* chat_template() const = 0;  // nullptr when the file has none
  virtual const ModelConfig& config() const = 0;
  // Of requests that do not say it themselves (--generation-config).
  virtual const SamplingDefaults& sampling() const = 0;
  virtual AdapterBank* adapters() = 0;  // nullptr: requests have none
  // Of requests that name the model itself (AdapterOptions::of_all), now; nullptr: none.
  virtual std::shared_ptr<const Adapter> adapter_of_all() const = 0;
  virtual const StackInfo& info() const = 0;
  // What the start spent its time on. log_first_token() adds the first token of whoever asked.
  virtual Timeline& timeline() = 0;
  virtual std::optional<GpuMemoryUse> gpu_memory() const = 0;  // empty on the CPU. Any thread
};

// Ends the start's timeline and writes it to the log, once.
void log_first_token(ModelStack& stack);

}  // namespace headrace
