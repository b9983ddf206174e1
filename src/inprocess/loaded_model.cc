#include "inprocess/loaded_model.h"

#include <chrono>
#include <utility>

#include "apps/chat_prompt.h"
#include "base/json.h"
#include "cli/adapter_flags.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/pooling_flags.h"
#include "stack/model_source.h"
#include "tensor/cpu_features.h"
#include "text/chat_prompt.h"

namespace headrace {
namespace {

// Prompts come all at once and nobody waits for the first: as for `bench throughput`, and what
// Python holds may wait here.
StackOptions offline_options() {
  StackOptions options;
  options.batch.cpu_max_num_seqs = 256;
  options.engine.scheduler.max_queued_requests = 1 << 24;
  return options;
}

Result<StackOptions> read_arguments(const std::string& model, std::vector<std::string> arguments) {
  ModelFlags flags{.stack = offline_options()};
  CLI::App app("", "run");  // whose help names the flags
  app.option_defaults()->always_capture_default();
  add_pooling_flags(app, flags.stack.pooling);
  add_adapter_flag(app, flags.stack.adapters);
  add_model_flags(app, flags);
  add_generation_config_flags(app, flags);
  add_template_flag(app, flags);
  add_engine_flags(app, flags);
  arguments.insert(arguments.begin(), {"--model", model});
  HR_RETURN_IF_ERROR(parse_arguments(app, std::move(arguments)).status());
  HR_RETURN_IF_ERROR(apply_model_flags(flags));
  return std::move(flags.stack);
}

// Pieces of a text behind each other, as an answer's: U+FFFD for what is no character.
std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                    bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.flush();
}

}  // namespace

Result<LoadedModel> load_model(const std::string& model, std::vector<std::string> arguments) {
  HR_RETURN_IF_ERROR(check_cpu_isa());
  HR_ASSIGN_OR_RETURN(const StackOptions options, read_arguments(model, std::move(arguments)));
  HR_ASSIGN_OR_RETURN(auto source, open_model_source(options.model, options.load.architecture_map));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<EmbeddingStack> embedder,
                      EmbeddingStack::load(options, source));
  if (embedder) {
    if (embedder->tokenizer() == nullptr) {
      return unsupported(options.model + ": the model has no vocabulary");
    }
    return LoadedModel(std::make_unique<EmbeddingModel>(std::move(embedder)));
  }
  HR_ASSIGN_OR_RETURN(std::shared_ptr<ModelStack> stack,
                      ModelStack::load(options, nullptr, std::move(source)));
  if (stack->tokenizer() == nullptr) {
    return unsupported(options.model + ": the model has no vocabulary");
  }
  return LoadedModel(std::make_unique<TextModel>(std::move(stack)));
}

// ---- text

Result<std::vector<TokenId>> TextModel::encode(std::string_view text) const {
  return encode_text(*stack_, text);
}

Result<std::vector<TokenId>> TextModel::encode_chat(std::string_view messages,
                                                    std::string_view variables,
                                                    bool add_generation_prompt,
                                                    bool continue_final_message) const {
  if (stack_->chat_template() == nullptr) {
    return unsupported(
        "the model has no chat template: use generate(), or load with "
        "chat_template=");
  }
  HR_ASSIGN_OR_RETURN(const Json conversation, parse_json(messages));
  HR_ASSIGN_OR_RETURN(const Json extra, parse_json(variables));
  HR_ASSIGN_OR_RETURN(const auto encoder,
                      ChatPromptEncoder::create(*stack_->tokenizer(), *stack_->chat_template()));
  return encoder->encode(conversation, extra,
                         {.add_generation_prompt = add_generation_prompt,
                          .continue_final_message = continue_final_message});
}

std::string TextModel::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  return text_of(*stack_->tokenizer(), ids, skip_special);
}

std::unique_ptr<RequestGroup> TextModel::group(NewsTime time) const {
  return std::make_unique<RequestGroup>(stack_, time);
}

SamplingParams TextModel::default_sampling() const {
  SamplingParams sampling;
  stack_->sampling().apply_to(sampling);
  return sampling;
}

// ---- vectors

struct EmbeddingJob::State {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<EmbeddingResult> result;
};

EmbeddingJob::~EmbeddingJob() { stack_->engine().cancel(request_); }

bool EmbeddingJob::wait(double seconds) const {
  std::unique_lock lock(state_->mutex);
  return state_->ended.wait_for(lock, std::chrono::duration<double>(seconds),
                                [&] { return state_->result.has_value(); });
}

Result<std::vector<float>> EmbeddingJob::take() {
  std::lock_guard lock(state_->mutex);
  if (!state_->result) return internal_error("the vectors are not there yet");
  HR_RETURN_IF_ERROR(state_->result->status);
  return std::move(state_->result->vectors);
}

Result<std::vector<TokenId>> EmbeddingModel::encode(std::string_view text) const {
  return stack_->tokenizer()->encode(text);
}

std::string EmbeddingModel::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  return text_of(*stack_->tokenizer(), ids, skip_special);
}

Result<std::unique_ptr<EmbeddingJob>> EmbeddingModel::embed(
    std::vector<std::vector<TokenId>> texts) const {
  auto state = std::make_shared<EmbeddingJob::State>();
  HR_ASSIGN_OR_RETURN(
      const RequestId request,
      stack_->engine().submit(single_texts(std::move(texts)), [state](EmbeddingResult result) {
        std::lock_guard lock(state->mutex);
        state->result = std::move(result);
        state->ended.notify_all();
      }));
  return std::make_unique<EmbeddingJob>(stack_, std::move(state), request);
}

}  // namespace headrace
