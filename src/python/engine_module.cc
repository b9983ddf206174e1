// headrace._engine: what python/headrace is made of. Whatever waits gives the interpreter's lock
// back.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/answer.h"
#include "apps/chat_prompt.h"
#include "base/json.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/version.h"
#include "stack/model_stack.h"
#include "tensor/cpu_features.h"

namespace nb = nanobind;

namespace headrace {
namespace {

// A caller's mistake is a ValueError, the world's a RuntimeError; the message is the one line.
void throw_if_error(const Status& status) {
  if (status.ok()) return;
  if (status.code() == StatusCode::kInvalidArgument) {
    throw nb::value_error(status.message().c_str());
  }
  throw std::runtime_error(status.message());
}

template <class T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

// One answer on its way. next() on one thread at a time, cancel() on any. It keeps its model.
class Generation {
 public:
  Generation(std::shared_ptr<ModelStack> stack, std::unique_ptr<Answer> answer)
      : stack_(std::move(stack)), answer_(std::move(answer)) {}

  std::optional<std::string> next() { return answer_->next_text(); }
  void cancel() { answer_->cancel(); }
  std::vector<TokenId> tokens() const { return answer_->tokens(); }
  std::string finish_reason() const { return std::string(answer_->finish_reason()); }

 private:
  std::shared_ptr<ModelStack> stack_;  // longer than the answer, which reads it
  std::unique_ptr<Answer> answer_;
};

class LoadedModel {
 public:
  // `arguments`: flags as of `headrace run`.
  LoadedModel(const std::string& model, std::vector<std::string> arguments) {
    throw_if_error(check_cpu_isa());
    ModelFlags flags;
    CLI::App app("", "LLM");
    app.option_defaults()->always_capture_default();
    add_model_flags(app, flags);
    add_generation_config_flags(app, flags);
    add_template_flag(app, flags);
    add_engine_flags(app, flags);
    arguments.insert(arguments.begin(), {"--model", model});
    throw_if_error(parse_arguments(app, std::move(arguments)).status());
    throw_if_error(apply_model_flags(flags));
    stack_ = value_or_throw(ModelStack::load(flags.stack));
  }

  std::vector<TokenId> encode(const std::string& text) const {
    return value_or_throw(encode_text(*stack_, text));
  }
  // `messages`: a JSON array.
  std::vector<TokenId> encode_messages(const std::string& messages) const {
    return value_or_throw(encode_chat(*stack_, value_or_throw(parse_json(messages))));
  }

  std::unique_ptr<Generation> generate(const std::vector<TokenId>& prompt,
                                       const SamplingParams& sampling,
                                       const std::vector<std::string>& stops) {
    AnswerRequest request;
    request.prompt = prompt;
    request.sampling = sampling;
    request.stops = stops;
    auto answer = value_or_throw(Answer::start(*stack_, std::move(request)));
    return std::make_unique<Generation>(stack_, std::move(answer));
  }

  // What the model's makers suggest.
  SamplingParams default_sampling() const {
    SamplingParams sampling;
    stack_->sampling().apply_to(sampling);
    return sampling;
  }
  std::string name() const { return stack_->info().model_name; }
  int32_t max_model_len() const { return stack_->info().max_model_len; }

 private:
  std::shared_ptr<ModelStack> stack_;
};

void define_sampling(nb::module_& module) {
  nb::class_<SamplingParams>(module, "Sampling")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("max_tokens", &SamplingParams::max_tokens)
      .def_rw("min_tokens", &SamplingParams::min_tokens)
      .def_rw("ignore_eos", &SamplingParams::ignore_eos)
      .def_rw("stop_token_ids", &SamplingParams::stop_token_ids);
}

}  // namespace
}  // namespace headrace

NB_MODULE(_engine, module) {
  using namespace headrace;
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  module.attr("__version__") = std::string(program_version());
  define_sampling(module);
  nb::class_<Generation>(module, "Generation")
      .def("next", &Generation::next, unlocked)
      .def("cancel", &Generation::cancel, unlocked)
      .def_prop_ro("tokens", &Generation::tokens)
      .def_prop_ro("finish_reason", &Generation::finish_reason);
  nb::class_<LoadedModel>(module, "LoadedModel")
      .def(nb::init<const std::string&, std::vector<std::string>>(), nb::arg("model"),
           nb::arg("arguments"), unlocked)
      .def("encode", &LoadedModel::encode, nb::arg("text"), unlocked)
      .def("encode_messages", &LoadedModel::encode_messages, nb::arg("messages"), unlocked)
      .def("generate", &LoadedModel::generate, nb::arg("prompt"), nb::arg("sampling"),
           nb::arg("stops"), unlocked)
      .def("default_sampling", &LoadedModel::default_sampling)
      .def_prop_ro("name", &LoadedModel::name)
      .def_prop_ro("max_model_len", &LoadedModel::max_model_len);
}
