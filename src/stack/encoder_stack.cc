#include "stack/embedding_stack.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "engine/encoder_runner.h"
#include "models/encoder.h"
#include "stack/model_device.h"
#include "stack/model_files.h"
#include "stack/model_source.h"

namespace headrace {
namespace {

class EncoderStack final : public EmbeddingStack {
 public:
  EmbeddingEngine& engine() override { return *engine_; }
  const Tokenizer* tokenizer() const override { return text_.tokenizer.get(); }
  const EmbeddingModelFacts& facts() const override { return facts_; }
  const StackInfo& info() const override { return info_; }

 private:
  friend class EncoderLoad;

  // Destroyed from the last to the first: the engine goes before what it uses.
  OpHooks hooks_;  // of prefer_kernels
  std::unique_ptr<ModelSource> source_;
  std::shared_ptr<WeightSource> weights_;
  ModelText text_;
  StackInfo info_;
  EmbeddingModelFacts facts_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<EmbeddingEngine> engine_;
};

// The stages of a load, in order.
class EncoderLoad {
 public:
  EncoderLoad(const StackOptions& options, std::unique_ptr<ModelSource> source)
      : options_(options), stack_(std::make_unique<EncoderStack>()) {
    stack_->source_ = std::move(source);
  }

  Result<std::unique_ptr<EmbeddingStack>> load(const EncoderConfig& config) {
    const auto start = std::chrono::steady_clock::now();
    HR_RETURN_IF_ERROR(check_options());
    HR_RETURN_IF_ERROR(check_load_format(*stack_->source_, options_.load.format));
    HR_RETURN_IF_ERROR(start_device());
    stack_->text_ = read_text(*stack_->source_, "");
    HR_RETURN_IF_ERROR(refusal(stack_->text_.problems));
    HR_RETURN_IF_ERROR(load_encoder(config));
    HR_RETURN_IF_ERROR(check_vocabulary());
    HR_RETURN_IF_ERROR(start_engine());
    fill_info();
    stack_->source_->release_pages();
    ::malloc_trim(0);
    stack_->info_.load_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::unique_ptr<EmbeddingStack>(std::move(stack_));
  }

 private:
  Status check_options() const {
    const auto refuse = [&](std::string_view flag, std::string_view why) {
      return unsupported(fmt::format("{}: {} {}", options_.model, flag, why), std::string(flag));
    };
    if (options_.device.choice == DeviceChoice::kGpu) {
      return refuse("--device cuda", "is not supported for encoders yet: use --device cpu");
    }
    if (options_.load.format == LoadFormat::kDummy) {
      return refuse("--load-format dummy", "is not supported for encoders");
    }
    if (options_.load.dtype == DType::kF16) {
      return refuse("--dtype float16", "is of GPUs: use float32 or bfloat16 for encoders");
    }
    if (options_.load.dtype == DType::kBF16 && options_.load.quantise_to) {
      return refuse("--dtype bfloat16", "and --quantization are two types: leave one out");
    }
    if (options_.load.quantise_to == DType::kF8) {
      return refuse("--quantization fp8", "is of GPUs: use q8_0 for encoders");
    }
    if (options_.device.tensor_parallel_size > 1) {
      return refuse("--tensor-parallel-size", "is 1 for encoders");
    }
    if (options_.device.pipeline_parallel_size > 1) {
      return refuse("--pipeline-parallel-size", "is 1 for encoders");
    }
    return ok_status();
  }

  // What matrices become: a block type, BF16, or (empty) what they are, in fp32. --dtype auto is
  // BF16 where a CPU multiplies it twice as fast and a row's bits stay its own (with tiles of AMX
  // they depend on the rows beside it), and only for vectors, whose cosines move by some 5e-5
  // (docs/embeddings.md): logits are read as numbers.
  std::optional<DType> products_of(const EncoderConfig& config) const {
    const LoadOptions& load = options_.load;
    if (load.quantise_to) return load.quantise_to;
    const CpuFeatures& cpu = stack_->device_->traits().cpu;
    const bool pays = cpu.fast_bf16_dot && !cpu.amx_bf16 && !config.head;
    const DType dtype = load.dtype.value_or(pays ? DType::kBF16 : DType::kF32);
    if (dtype != DType::kBF16) return std::nullopt;
    if (!load.dtype) {
      log_info("{}: products in bfloat16; --dtype float32: all in fp32", options_.model);
    }
    return dtype;
  }

  Status start_device() {
    DeviceOptions device = options_.device;
    device.choice = DeviceChoice::kCpu;
    HR_ASSIGN_OR_RETURN(stack_->device_, create_device(device));
    return ok_status();
  }

  Status load_encoder(const EncoderConfig& config) {
    const int32_t length = options_.memory.max_model_len;
    if (length > config.length_max) {
      return invalid_argument(
          fmt::format("--max-model-len {} is more than the {} tokens that the model was made for",
                      length, config.length_max),
          "max-model-len");
    }
    HR_ASSIGN_OR_RETURN(stack_->weights_,
                        stack_->source_->weights(encoder_hf_names(config), /*tied=*/false));
    HR_ASSIGN_OR_RETURN(stack_->encoder_,
                        Encoder::load(config, *stack_->weights_, *stack_->device_,
                                      {.length_max = length, .quantise_to = products_of(config)}));
    return ok_status();
  }

  // Ids of the tokenizer are rows of the table.
  Status check_vocabulary() const {
    if (!stack_->text_.tokenizer) return ok_status();
    const int32_t tokens = stack_->text_.tokenizer->vocab_size();
    const int32_t rows = stack_->encoder_->config().vocab;
    if (tokens <= rows) return ok_status();
    return corrupt(
        fmt::format("{}: the tokenizer has {} tokens, the model {}", options_.model, tokens, rows),
        "vocab_size");
  }

  Status start_engine() {
    const int32_t length = stack_->encoder_->config().length_max;
    const int32_t wanted = options_.batch.max_num_batched_tokens;
    EmbeddingOptions engine;
    if (wanted > 0) engine.pass_tokens_max = wanted;
    engine.queued_requests_max = options_.engine.scheduler.max_queued_requests;
    engine.watchdog_seconds = options_.engine.watchdog_seconds;
    stack_->hooks_.preferred = options_.prefer_kernels;
    const OpHooks* hooks = options_.prefer_kernels.empty() ? nullptr : &stack_->hooks_;
    HR_ASSIGN_OR_RETURN(auto runner,
                        create_encoder_runner(*stack_->device_, *stack_->encoder_,
                                              std::max(engine.pass_tokens_max, length), hooks));
    stack_->engine_ = EmbeddingEngine::create(engine, std::move(runner));
    return ok_status();
  }

  void fill_info() {
    StackInfo& info = stack_->info_;
    info.model_name = model_name(options_.model);
    info.model_path = options_.model;
    info.weight_types = matrix_types(*stack_->weights_);
    for (const std::string_view name : stack_->weights_->names()) {
      const auto tensor = stack_->weights_->info(name);
      if (tensor) info.parameter_count += tensor->shape.elements().value_or(0);
    }
    info.file_bytes = stack_->weights_->file_bytes();
    info.weight_bytes = stack_->encoder_->weight_bytes();
    info.max_model_len = stack_->encoder_->config().length_max;
    info.threads = stack_->device_->pool().thread_count();
    info.cpu_features = stack_->device_->traits().cpu.to_string();
    info.device = stack_->device_->traits().name;
    const EncoderConfig& config = stack_->encoder_->config();
    stack_->facts_ = {
        .architecture = config.architecture,
        .context_length = config.length_max,
        .hidden = config.hidden,
        .layers = config.layers,
        .gives = description_of(
            {.pooling = config.pooling, .normalise = config.normalise, .head = config.head},
            config.hidden)};
  }

  const StackOptions& options_;
  std::unique_ptr<EncoderStack> stack_;
};

}  // namespace

Result<std::unique_ptr<EmbeddingStack>> load_encoder_stack(const StackOptions& options,
                                                           std::unique_ptr<ModelSource> source,
                                                           const EncoderConfig& config) {
  return EncoderLoad(options, std::move(source)).load(config);
}

}  // namespace headrace
