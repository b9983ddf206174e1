// headrace.h over LoadedModel and RequestGroup.
#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/version.h"
#include "inprocess/headrace.h"
#include "inprocess/loaded_model.h"
#include "inprocess/request_group.h"

struct headrace_model {
  headrace::LoadedModel loaded;
};

namespace headrace {
namespace {

constexpr double kWaitSeconds = 3600;  // of one wait; the next begins where nothing came
constexpr int32_t kAnswerTokens = 256;

thread_local std::string last_error;

headrace_status told(const Status& status) {
  if (status.ok()) return HEADRACE_OK;
  last_error = status.message();
  return status.code() == StatusCode::kInvalidArgument ? HEADRACE_INVALID : HEADRACE_FAILED;
}

// What `work` returns. A caller in C cannot catch what is thrown where memory ends.
template <class Work, class Value>
Value guarded(Work&& work, Value failed) {
  try {
    return work();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

Result<TextModel*> text_model(headrace_model* model) {
  const auto* found = std::get_if<std::unique_ptr<TextModel>>(&model->loaded);
  if (found == nullptr) {
    return invalid_argument("the model gives vectors and generates no text: headrace_embed()");
  }
  return found->get();
}

struct Range {
  const char* name;
  double value, low, high;
};

Status check_ranges(const headrace_sampling& given) {
  constexpr double kTokensMax = 1 << 24;
  const Range ranges[] = {{"temperature", given.temperature, 0, 100},
                          {"top_p", given.top_p, 1e-6, 1},
                          {"min_p", given.min_p, 0, 1},
                          {"top_k", static_cast<double>(given.top_k), 0, kTokensMax},
                          {"repetition_penalty", given.repetition_penalty, 0.01, 100},
                          {"presence_penalty", given.presence_penalty, -2, 2},
                          {"frequency_penalty", given.frequency_penalty, -2, 2}};
  for (const Range& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;
    return invalid_argument(
        fmt::format("{} is {:g}: must be {:g} to {:g} (headrace_default_sampling() has values "
                    "for all fields)",
                    range.name, range.value, range.low, range.high));
  }
  if (given.max_tokens != 0) return ok_status();
  return invalid_argument("max_tokens is 0: must be 1 or more, or -1 for what the context holds");
}

SamplingParams sampling_of(const TextModel& model, const headrace_sampling& given) {
  SamplingParams sampling = model.default_sampling();
  sampling.temperature = given.temperature;
  sampling.top_p = given.top_p;
  sampling.min_p = given.min_p;
  sampling.top_k = given.top_k;
  sampling.repetition_penalty = given.repetition_penalty;
  sampling.presence_penalty = given.presence_penalty;
  sampling.frequency_penalty = given.frequency_penalty;
  if (given.seed >= 0) sampling.seed = static_cast<uint64_t>(given.seed);
  sampling.max_tokens = given.max_tokens;
  return sampling;
}

const char* lasting_reason(const std::string& reason) {
  for (const char* known : {"stop", "length", "abort"}) {
    if (reason == known) return known;
  }
  return "error";
}

struct Answering {
  headrace_on_text on_text;
  void* context;
  headrace_result result;
};

// Until the answer has ended. What a signal interrupts goes on.
Status read_answer(RequestGroup& group, Answering& answer) {
  for (;;) {
    for (const RequestNews& news : group.take(kWaitSeconds)) {
      answer.result.cached_tokens = std::max(answer.result.cached_tokens, news.cached_tokens);
      for (const ChoiceNews& choice : news.choices) {
        answer.result.answer_tokens += static_cast<int32_t>(choice.tokens.size());
        if (!choice.finish_reason.empty()) {
          answer.result.finish_reason = lasting_reason(choice.finish_reason);
        }
        if (answer.on_text == nullptr || choice.text.empty()) continue;
        if (answer.on_text(answer.context, choice.text.data(), choice.text.size()) != 0) {
          answer.result.finish_reason = "abort";
          return ok_status();  // the group's end cancels it
        }
      }
      if (!news.finished) continue;
      if (std::string_view(answer.result.finish_reason) != "error") return ok_status();
      return internal_error("the engine gave the answer up");
    }
  }
}

Status answer_prompt(const TextModel& model, std::vector<TokenId> prompt,
                     const headrace_sampling* given, Answering& answer) {
  const headrace_sampling sampling = given != nullptr ? *given : headrace_sampling{};
  SamplingParams params;
  if (given != nullptr) {
    HR_RETURN_IF_ERROR(check_ranges(sampling));
    params = sampling_of(model, sampling);
  } else {
    params = model.default_sampling();
    params.max_tokens = kAnswerTokens;
  }
  TextStreamOptions options;
  for (size_t i = 0; i < sampling.stop_count; ++i) options.stops.emplace_back(sampling.stop[i]);
  answer.result.prompt_tokens = static_cast<int32_t>(prompt.size());
  const std::unique_ptr<RequestGroup> group = model.group(NewsTime::kSteps);
  HR_RETURN_IF_ERROR(
      group->submit(std::move(prompt), std::move(params), options, std::nullopt).status());
  return read_answer(*group, answer);
}

// `encode`: the prompt's ids of a TextModel.
template <class Encode>
headrace_status answered(headrace_model* model, Encode&& encode, const headrace_sampling* sampling,
                         Answering answer, headrace_result* result) {
  const auto work = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(const TextModel* text, text_model(model));
    HR_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, encode(*text));
    return answer_prompt(*text, std::move(prompt), sampling, answer);
  };
  const headrace_status status = guarded([&] { return told(work()); }, HEADRACE_FAILED);
  if (result != nullptr) *result = answer.result;
  return status;
}

Status embed_texts(const EmbeddingModel& model, const char* const* texts, size_t count,
                   float* vectors) {
  if (model.is_classifier()) return invalid_argument("the model gives classes and no vectors");
  std::vector<std::vector<TokenId>> ids;
  for (size_t i = 0; i < count; ++i) {
    HR_ASSIGN_OR_RETURN(ids.emplace_back(), model.encode(texts[i]));
  }
  if (ids.empty()) return ok_status();
  HR_ASSIGN_OR_RETURN(const auto job, model.embed(std::move(ids)));
  while (!job->wait(kWaitSeconds)) continue;
  HR_ASSIGN_OR_RETURN(const std::vector<float> found, job->take());
  std::copy(found.begin(), found.end(), vectors);
  return ok_status();
}

}  // namespace
}  // namespace headrace

using namespace headrace;

const char* headrace_version(void) { return program_version().data(); }

const char* headrace_error(void) { return last_error.c_str(); }

headrace_model* headrace_load(const char* model, const char* const* flags, size_t flag_count) {
  return guarded(
      [&]() -> headrace_model* {
        std::vector<std::string> arguments;
        for (size_t i = 0; i < flag_count; ++i) arguments.emplace_back(flags[i]);
        Result<LoadedModel> loaded = load_model(model, std::move(arguments));
        if (told(loaded.status()) != HEADRACE_OK) return nullptr;
        return new headrace_model{std::move(loaded).value()};
      },
      static_cast<headrace_model*>(nullptr));
}

void headrace_free(headrace_model* model) { delete model; }

int32_t headrace_context_length(const headrace_model* model) {
  return std::visit([](const auto& each) { return each->max_model_len(); }, model->loaded);
}

int32_t headrace_dimensions(const headrace_model* model) {
  const auto* found = std::get_if<std::unique_ptr<EmbeddingModel>>(&model->loaded);
  return found != nullptr ? (*found)->dimensions() : 0;
}

headrace_sampling headrace_default_sampling(const headrace_model* model) {
  SamplingParams suggested;
  if (const auto* text = std::get_if<std::unique_ptr<TextModel>>(&model->loaded)) {
    suggested = (*text)->default_sampling();
  }
  return {.temperature = suggested.temperature,
          .top_p = suggested.top_p,
          .min_p = suggested.min_p,
          .top_k = suggested.top_k,
          .repetition_penalty = suggested.repetition_penalty,
          .presence_penalty = suggested.presence_penalty,
          .frequency_penalty = suggested.frequency_penalty,
          .seed = -1,
          .max_tokens = kAnswerTokens,
          .stop = nullptr,
          .stop_count = 0};
}

headrace_status headrace_generate(headrace_model* model, const char* prompt,
                                  const headrace_sampling* sampling, headrace_on_text on_text,
                                  void* context, headrace_result* result) {
  return answered(
      model, [&](const TextModel& text) { return text.encode(prompt); }, sampling,
      {on_text, context, {0, 0, 0, ""}}, result);
}

headrace_status headrace_chat(headrace_model* model, const char* messages,
                              const headrace_sampling* sampling, headrace_on_text on_text,
                              void* context, headrace_result* result) {
  return answered(
      model, [&](const TextModel& text) { return text.encode_chat(messages, "{}", true, false); },
      sampling, {on_text, context, {0, 0, 0, ""}}, result);
}

headrace_status headrace_embed(headrace_model* model, const char* const* texts, size_t count,
                               float* vectors) {
  return guarded(
      [&] {
        const auto* found = std::get_if<std::unique_ptr<EmbeddingModel>>(&model->loaded);
        if (found == nullptr) {
          return told(
              invalid_argument("the model gives no vectors: load it with --embedding, or another"));
        }
        return told(embed_texts(**found, texts, count, vectors));
      },
      HEADRACE_FAILED);
}
