// The stack of a decoder that gives vectors or scores.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "engine/pooled_decoder_runner.h"
#include "models/model.h"
#include "stack/compute_choice.h"
#include "stack/embedding_stack.h"
#include "stack/kv_format_choice.h"
#include "stack/memory_planning.h"
#include "stack/model_device.h"
#include "stack/model_files.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr const char* kClasses = "cls.output.weight";

class PooledDecoderStack final : public EmbeddingStack {
 public:
  EmbeddingEngine& engine() override { return *engine_; }
  const Tokenizer* tokenizer() const override { return text_.tokenizer.get(); }
  const ChatTemplate* pair_template() const override {
    return pair_template_ ? &*pair_template_ : nullptr;
  }
  bool joins_pairs() const override { return true; }
  const EmbeddingModelFacts& facts() const override { return facts_; }
  const StackInfo& info() const override { return info_; }

 private:
  friend class PooledDecoderLoad;

  // Destroyed from the last to the first: the engine goes before what it uses.
  OpHooks hooks_;  // of prefer_kernels
  std::unique_ptr<ModelSource> source_;
  ModelWeights weights_;
  ModelText text_;
  std::optional<ChatTemplate> pair_template_;
  StackInfo info_;
  EmbeddingModelFacts facts_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<EmbeddingEngine> engine_;
};

// A text with {query} and {document}, as GGUF files have it, in a chat template's words.
std::string template_of_places(std::string text) {
  const auto put = [&](std::string_view place, std::string_view expression) {
    for (size_t at = 0; (at = text.find(place, at)) != text.npos; at += expression.size()) {
      text.replace(at, place.size(), expression);
    }
  };
  put("{query}", "{{ messages[0]['content'] }}");
  put("{document}", "{{ messages[1]['content'] }}");
  return text + "{{ '' }}";  // a newline at the end of a template would not be written
}

// The stages of a load, in order.
class PooledDecoderLoad {
 public:
  PooledDecoderLoad(const StackOptions& options, std::unique_ptr<ModelSource> source,
                    const PoolingConfig& config)
      : options_(options), config_(config), stack_(std::make_unique<PooledDecoderStack>()) {
    stack_->source_ = std::move(source);
  }

  Result<std::unique_ptr<EmbeddingStack>> load() {
    const auto start = std::chrono::steady_clock::now();
    HR_RETURN_IF_ERROR(check_options());
    HR_RETURN_IF_ERROR(check_load_format(*stack_->source_, options_.load.format));
    HR_RETURN_IF_ERROR(start_device());
    // The file's own template is of chats, so that nobody needs to be able to read it.
    const std::string pairs = pair_template();
    stack_->text_ =
        pairs.empty() ? read_tokenizer_alone(*stack_->source_) : read_text(*stack_->source_, pairs);
    HR_RETURN_IF_ERROR(refusal(stack_->text_.problems));
    if (!pairs.empty()) stack_->pair_template_ = stack_->text_.chat_template;
    HR_RETURN_IF_ERROR(load_model());
    HR_RETURN_IF_ERROR(refusal(make_agree(*stack_->source_, stack_->weights_, stack_->text_)));
    HR_RETURN_IF_ERROR(start_engine());
    fill_info();
    stack_->text_.vocab.reset();
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
      return refuse("--device cuda", "gives no vectors and scores yet: use --device cpu");
    }
    if (options_.device.tensor_parallel_size > 1) {
      return refuse("--tensor-parallel-size", "is 1 where vectors or scores are asked for");
    }
    if (options_.device.pipeline_parallel_size > 1) {
      return refuse("--pipeline-parallel-size", "is 1 where vectors or scores are asked for");
    }
    HR_RETURN_IF_ERROR(check_load_options(options_.load, /*on_gpu=*/false));
    return check_kv_formats(options_.kv_formats, /*on_gpu=*/false);
  }

  Status start_device() {
    DeviceOptions device = options_.device;
    device.choice = DeviceChoice::kCpu;
    HR_ASSIGN_OR_RETURN(stack_->device_, create_device(device));
    return ok_status();
  }

  // What --chat-template or the file says. (The file's template of chats is not for pairs.)
  std::string pair_template() const {
    if (!config_.head) return "";
    const std::string& chosen = options_.text.chat_template;
    return chosen.empty() && !config_.pair_template.empty()
               ? template_of_places(config_.pair_template)
               : chosen;
  }

  Device& device() const { return *stack_->device_; }
  ComputeType compute() const {
    return compute_type(options_.load, stack_->weights_, stack_->source_->kind(),
                        /*on_gpu=*/false);
  }

  Status load_model() {
    ModelWeights& weights = stack_->weights_;
    // An embedder may be saved without it, whatever its configuration says.
    const OutputMatrix matrix =
        config_.head_tokens.empty() ? OutputMatrix::kNotNeeded : OutputMatrix::kNeeded;
    weights = read_weights(*stack_->source_, options_.load, device().pool().thread_count(), matrix);
    HR_RETURN_IF_ERROR(refusal(weights.problems));
    if (has_states(weights.config) || has_joined_layers(weights.config)) {
      return unsupported(fmt::format(
          "{}: layers that leave something to later ones (states of convolutions, gated "
          "DeltaNet, Mamba; rows beside rows of Gemma 3n and 4) give no vectors and scores",
          options_.model));
    }
    HR_ASSIGN_OR_RETURN(weights.config.served_length, plan_model_len(options_, weights, device()));
    if (options_.memory.max_model_len == 0 && config_.length_max > 0) {
      weights.config.served_length = std::min(weights.config.served_length, config_.length_max);
    }
    HR_RETURN_IF_ERROR(check_load_memory(options_, weights, device(), /*packed_in_file=*/false));
    HR_ASSIGN_OR_RETURN(head_rows_, read_head());
    const ModelLoadOptions load{
        .compute = compute(), .quantise_to = options_.load.quantise_to, .with_head = false};
    const BoundScope bound = device().pool().bind_caller_here();
    auto model = weights.architecture->load(weights.config, *weights.weights, device(), load);
    if (!model.ok()) return model.status().with_context(options_.model);
    stack_->model_ = std::move(model).value();
    return ok_status();
  }

  // ---- the classes' rows [labels, D] ----

  Result<std::vector<float>> read_head() const {
    if (!config_.head) return std::vector<float>();
    HR_ASSIGN_OR_RETURN(std::vector<float> rows,
                        config_.head_tokens.empty() ? rows_of_classes() : rows_of_tokens());
    const auto width = static_cast<size_t>(stack_->weights_.config.hidden);
    if (config_.positive_row) {
      CHECK(rows.size() == 2 * width);
      const size_t positive = static_cast<size_t>(*config_.positive_row) * width;
      const size_t other = width - positive;
      for (size_t i = 0; i < width; ++i) rows[i] = rows[positive + i] - rows[other + i];
      rows.resize(width);
    }
    CHECK(rows.size() == config_.head.labels.size() * width);
    return rows;
  }

  Result<std::vector<float>> rows_of_classes() const {
    const ModelConfig& config = stack_->weights_.config;
    const auto classes =
        static_cast<int64_t>(config_.head.labels.size()) + (config_.positive_row ? 1 : 0);
    HR_ASSIGN_OR_RETURN(const ConstTensorView table,
                        stack_->weights_.weights->get(kClasses, Shape{classes, config.hidden}));
    std::vector<float> rows(static_cast<size_t>(classes * config.hidden));
    for (int64_t r = 0; r < classes; ++r) dequantise_row(table, r, &rows[r * config.hidden]);
    return rows;
  }

  Result<std::vector<float>> rows_of_tokens() const {
    const ModelConfig& config = stack_->weights_.config;
    if (!config.head.matrix) {
      return unsupported(
          fmt::format("--hf-overrides: classifier_from_token: {} is of a class without an output "
                      "matrix, so that no token has a logit",
                      options_.model),
          "hf-overrides");
    }
    const char* const name = config.tied_embeddings ? "token_embd.weight" : "output.weight";
    HR_ASSIGN_OR_RETURN(const ConstTensorView table,
                        stack_->weights_.weights->get(name, Shape{config.vocab, config.hidden}));
    std::vector<float> rows(config_.head_tokens.size() * static_cast<size_t>(config.hidden));
    float* row = rows.data();
    for (const std::string& token : config_.head_tokens) {
      HR_ASSIGN_OR_RETURN(const TokenId id, id_of(token));
      dequantise_row(table, id, row);
      row += config.hidden;
    }
    return rows;
  }

  Result<TokenId> id_of(const std::string& token) const {
    const Tokenizer* const tokenizer = stack_->tokenizer();
    if (tokenizer != nullptr) {
      HR_ASSIGN_OR_RETURN(const auto ids,
                          tokenizer->encode(token, {.add_special = false, .parse_special = true}));
      if (ids.size() == 1) return ids.front();
    }
    return invalid_argument(
        fmt::format("--hf-overrides: classifier_from_token: \"{}\" is no token of {}", token,
                    options_.model),
        "hf-overrides");
  }

  Status start_engine() {
    const int32_t wanted = options_.batch.max_num_batched_tokens;
    EmbeddingOptions engine;
    if (wanted > 0) engine.pass_tokens_max = wanted;
    engine.queued_requests_max = options_.engine.scheduler.max_queued_requests;
    engine.watchdog_seconds = options_.engine.watchdog_seconds;
    stack_->hooks_.preferred = options_.prefer_kernels;
    const OpHooks* hooks = options_.prefer_kernels.empty() ? nullptr : &stack_->hooks_;
    PooledDecoderOptions pooled{.pooling = config_.pooling,
                                .normalise = config_.normalise,
                                .head = config_.head,
                                .head_rows = std::move(head_rows_),
                                .kv_formats = choose_kv_formats(options_.kv_formats, DType::kF32),
                                .length_max = stack_->weights_.config.served_length,
                                .rows_max = engine.pass_tokens_max};
    HR_ASSIGN_OR_RETURN(auto runner, create_pooled_decoder_runner(device(), *stack_->model_,
                                                                  std::move(pooled), hooks));
    stack_->engine_ = EmbeddingEngine::create(engine, std::move(runner));
    return ok_status();
  }

  void fill_info() {
    const ModelWeights& weights = stack_->weights_;
    StackInfo& info = stack_->info_;
    info.model_name = model_name(options_.model);
    info.model_path = options_.model;
    info.weight_types = weights.weight_types;
    info.parameter_count = weights.parameter_count;
    info.file_bytes = weights.file_bytes;
    info.weight_bytes = stack_->model_->weight_bytes();
    info.max_model_len = weights.config.served_length;
    info.threads = device().pool().thread_count();
    info.cpu_features = device().traits().cpu.to_string();
    info.device = device().traits().name;
    stack_->facts_ = {.architecture = weights.config.architecture,
                      .context_length = weights.config.context_length,
                      .hidden = weights.config.hidden,
                      .layers = weights.config.layers,
                      .gives = description_of(config_, weights.config.hidden)};
  }

  const StackOptions& options_;
  const PoolingConfig& config_;
  std::vector<float> head_rows_;
  std::unique_ptr<PooledDecoderStack> stack_;
};

}  // namespace

Result<std::unique_ptr<EmbeddingStack>> load_pooled_decoder_stack(
    const StackOptions& options, std::unique_ptr<ModelSource> source, const PoolingConfig& config) {
  return PooledDecoderLoad(options, std::move(source), config).load();
}

}  // namespace headrace
