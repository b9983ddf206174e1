// headrace._engine: what python/headrace is made of. Whatever waits or computes gives the
// interpreter's lock back. Its stub, _engine.pyi, is made of it by the build.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cli/version.h"
#include "inprocess/loaded_model.h"
#include "inprocess/request_group.h"

namespace nb = nanobind;

namespace headrace {
namespace {

using Unlocked = nb::call_guard<nb::gil_scoped_release>;
using Vectors = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// A caller's mistake is a ValueError, the world's a RuntimeError; the message is the one line.
void throw_if_error(const Status& status) {
  if (status.ok()) return;
  if (status.code() == StatusCode::kInvalidArgument)
    throw nb::value_error(status.message().c_str());
  throw std::runtime_error(status.message());
}

template <class T>
T value_or_throw(Result<T> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

// Rows of `width` numbers, which numpy owns from now on.
Vectors to_numpy(std::vector<float> numbers, size_t width) {
  auto* held = new std::vector<float>(std::move(numbers));
  const nb::capsule owner(
      held, [](void* vector) noexcept { delete static_cast<std::vector<float>*>(vector); });
  return Vectors(held->data(), {held->size() / width, width}, owner);
}

// Log-probabilities of the whole vocabulary, a row a token: of the prompt's from the second on, and
// of the answer's first. REQUIRES: each entry names all of it.
Vectors whole_rows(const RequestNews& news) {
  std::vector<const TokenLogprobs*> rows;
  for (const TokenLogprobs& entry : news.prompt_logprobs) rows.push_back(&entry);
  for (const ChoiceNews& choice : news.choices) {
    for (const TokenLogprobs& entry : choice.logprobs) rows.push_back(&entry);
  }
  const size_t width = rows.empty() ? 0 : rows.front()->top.size();
  if (width == 0) throw std::runtime_error("the engine told no log-probabilities");
  std::vector<float> numbers(rows.size() * width);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [token, logprob] : rows[i]->top) {
      numbers[i * width + static_cast<size_t>(token)] = logprob;
    }
  }
  return to_numpy(std::move(numbers), width);
}

void define_sampling(nb::module_& module) {
  nb::class_<SamplingParams>(module, "Sampling")
      .def(nb::init<>())
      .def_rw("n", &SamplingParams::n)
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("max_tokens", &SamplingParams::max_tokens)
      .def_rw("min_tokens", &SamplingParams::min_tokens)
      .def_rw("ignore_eos", &SamplingParams::ignore_eos)
      .def_rw("stop_token_ids", &SamplingParams::stop_token_ids)
      .def_rw("logprobs", &SamplingParams::logprobs)
      .def_rw("prompt_logprobs", &SamplingParams::prompt_logprobs);
}

void set_early_stopping(BeamOptions& beams, const std::string& name) {
  const auto value = value_named(kEarlyStoppings, name);
  if (!value) throw nb::value_error("early_stopping must be True, False or \"never\"");
  beams.early_stopping = *value;
}

void define_beams(nb::module_& module) {
  nb::class_<BeamOptions>(module, "Beams")
      .def(nb::init<>())
      .def_rw("width", &BeamOptions::width)
      .def_rw("length_penalty", &BeamOptions::length_penalty)
      .def_prop_rw(
          "early_stopping",
          [](const BeamOptions& self) {
            return std::string(name_of(kEarlyStoppings, self.early_stopping));
          },
          set_early_stopping);
  nb::class_<BeamScore>(module, "BeamScore")
      .def_ro("cumulative_logprob", &BeamScore::cumulative_logprob)
      .def_ro("score", &BeamScore::score);
}

void define_news(nb::module_& module) {
  nb::class_<TokenLogprobs>(module, "TokenLogprobs")
      .def_ro("token", &TokenLogprobs::token)
      .def_ro("logprob", &TokenLogprobs::logprob)
      .def_ro("top", &TokenLogprobs::top);
  nb::class_<ChoiceNews>(module, "ChoiceNews")
      .def_ro("index", &ChoiceNews::index)
      .def_ro("text", &ChoiceNews::text)
      .def_ro("tokens", &ChoiceNews::tokens)
      .def_ro("logprobs", &ChoiceNews::logprobs)
      .def_ro("finish_reason", &ChoiceNews::finish_reason)
      .def_ro("stop_text", &ChoiceNews::stop_text)
      .def_ro("stop_token", &ChoiceNews::stop_token)
      .def_ro("beam_score", &ChoiceNews::beam_score);
  nb::class_<RequestNews>(module, "RequestNews")
      .def_ro("request", &RequestNews::request)
      .def_ro("choices", &RequestNews::choices)
      .def_ro("prompt_logprobs", &RequestNews::prompt_logprobs)
      .def_ro("cached_tokens", &RequestNews::cached_tokens)
      .def_ro("finished", &RequestNews::finished)
      .def("whole_rows", &whole_rows);
}

void define_group(nb::module_& module) {
  const auto submit = [](RequestGroup& group, std::vector<TokenId> prompt, SamplingParams sampling,
                         std::vector<std::string> stops, bool include_stop, bool skip_special,
                         const std::optional<BeamOptions>& beams) {
    return value_or_throw(group.submit(
        std::move(prompt), std::move(sampling),
        {.skip_special = skip_special, .stops = std::move(stops), .include_stop = include_stop},
        beams));
  };
  nb::class_<RequestGroup>(module, "RequestGroup")
      .def("submit", submit, nb::arg("prompt"), nb::arg("sampling"), nb::arg("stops"),
           nb::arg("include_stop"), nb::arg("skip_special"), nb::arg("beams") = nb::none(),
           Unlocked())
      .def("cancel", &RequestGroup::cancel, nb::arg("request"), Unlocked())
      .def("cancel_all", &RequestGroup::cancel_all, Unlocked())
      .def("take", &RequestGroup::take, nb::arg("seconds"), Unlocked())
      .def_prop_ro("file_descriptor", &RequestGroup::file_descriptor);
}

template <class Model>
void define_text(nb::class_<Model>& model) {
  model
      .def(
          "encode",
          [](const Model& self, std::string_view text) {
            return value_or_throw(self.encode(text));
          },
          nb::arg("text"), Unlocked())
      .def("decode", &Model::decode, nb::arg("ids"), nb::arg("skip_special"), Unlocked())
      .def_prop_ro("name", &Model::name)
      .def_prop_ro("max_model_len", &Model::max_model_len);
}

void define_models(nb::module_& module) {
  nb::class_<TextModel> text(module, "TextModel");
  define_text(text);
  text.def(
          "encode_chat",
          [](const TextModel& self, std::string_view messages, std::string_view variables,
             bool add_generation_prompt, bool continue_final_message) {
            return value_or_throw(self.encode_chat(messages, variables, add_generation_prompt,
                                                   continue_final_message));
          },
          nb::arg("messages"), nb::arg("variables"), nb::arg("add_generation_prompt"),
          nb::arg("continue_final_message"), Unlocked())
      .def(
          "group",
          [](const TextModel& self, bool every_step) {
            return self.group(every_step ? NewsTime::kSteps : NewsTime::kEnd);
          },
          nb::arg("every_step"))
      .def("default_sampling", &TextModel::default_sampling)
      .def_prop_ro("vocabulary", &TextModel::vocabulary)
      .def_prop_ro("on_gpu", &TextModel::on_gpu);

  nb::class_<EmbeddingModel> embedding(module, "EmbeddingModel");
  define_text(embedding);
  embedding
      .def(
          "embed",
          [](const EmbeddingModel& self, std::vector<std::vector<TokenId>> texts) {
            return value_or_throw(self.embed(std::move(texts)));
          },
          nb::arg("texts"), Unlocked())
      .def_prop_ro("dimensions", &EmbeddingModel::dimensions)
      .def_prop_ro("is_classifier", &EmbeddingModel::is_classifier);
  nb::class_<EmbeddingJob>(module, "EmbeddingJob")
      .def("wait", &EmbeddingJob::wait, nb::arg("seconds"), Unlocked())
      .def(
          "take",
          [](EmbeddingJob& self, size_t width) {
            return to_numpy(value_or_throw(self.take()), width);
          },
          nb::arg("width"));
}

}  // namespace
}  // namespace headrace

NB_MODULE(_engine, module) {
  using namespace headrace;
  module.attr("VERSION") = std::string(program_version());
  define_sampling(module);
  define_beams(module);
  define_news(module);
  define_group(module);
  define_models(module);
  module.def(
      "load_model",
      [](const std::string& model, std::vector<std::string> arguments) {
        return value_or_throw(load_model(model, std::move(arguments)));
      },
      nb::arg("model"), nb::arg("arguments"), Unlocked());
}
