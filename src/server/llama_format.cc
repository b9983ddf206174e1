#include "server/llama_format.h"

#include <map>

#include "server/error_response.h"
#include "server/sse.h"

namespace headrace {
namespace {

double ratio(double value, double by) { return by > 0 ? value / by : 0; }

class LlamaFormat final : public AnswerFormat {
 public:
  LlamaFormat(LlamaEcho echo, AnswerHead head)
      : AnswerFormat(std::move(head)), echo_(std::move(echo)) {}

  // One result, or a list of them where there are several prompts or choices.
  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    Json::Array results;
    for (size_t i = 0; i < choices.size(); ++i) {
      Told told;
      told.add(choices[i]);
      const auto index = static_cast<int32_t>(i);
      Json json = result(index, told, choices[i].text, usage);
      const bool tokens = echo_.return_tokens;
      json.set("tokens", tokens ? answer_token_ids_json(choices[i]) : Json::array());
      if (head_.top_logprobs >= 0) json.set("completion_probabilities", probabilities(choices[i]));
      results.push_back(std::move(json));
    }
    if (results.size() == 1) return std::move(results[0]);
    return Json(std::move(results));
  }

  std::vector<Json> events(int32_t index, bool, const ChoiceDelta& delta) override {
    Told& told = told_[index];
    told.add(delta);
    if (delta.text.empty() && delta.tokens.empty()) return {};
    Json json = Json::object();
    json.set("index", index).set("content", delta.text);
    json.set("tokens", answer_token_ids_json(delta)).set("stop", false).set("id_slot", -1);
    json.set("tokens_predicted", told.generated)
        .set("tokens_evaluated", head_.prompt_tokens[head_.prompt_of(index)]);
    if (head_.top_logprobs >= 0) json.set("completion_probabilities", probabilities(delta));
    return {std::move(json)};
  }

  // The results without their texts, which have been sent; there is no other mark of the end.
  void append_end(std::string& out, const Usage& usage, bool) override {
    for (const auto& [index, told] : told_) {
      append_sse_event(out, result(index, told, "", usage).set("tokens", Json::array()));
    }
  }
  void append_error(std::string& out, int http_status, std::string_view message) override {
    append_sse_event(out, error_json(http_status, message));
  }

 private:
  // Of a choice, so far.
  struct Told {
    int64_t generated = 0;
    bool new_line = false;
    FinishReason finish = FinishReason::kNone;
    StopReason stop_reason;

    void add(const ChoiceDelta& delta) {
      generated += delta.generated;
      new_line = new_line || delta.text.find('\n') != delta.text.npos;
      if (delta.finish == FinishReason::kNone) return;
      finish = delta.finish;
      stop_reason = delta.stop_reason;
    }
    std::string_view stop_type() const {
      if (finish == FinishReason::kLength || finish == FinishReason::kRepetition) return "limit";
      if (finish != FinishReason::kStop) return "none";
      return std::holds_alternative<std::string>(stop_reason) ? "word" : "eos";
    }
  };

  Json result(int32_t index, const Told& told, std::string_view content, const Usage& usage) const {
    const auto* word = std::get_if<std::string>(&told.stop_reason);
    const int64_t evaluated = head_.prompt_tokens[head_.prompt_of(index)];
    Json json = Json::object();
    json.set("index", index).set("content", content).set("id_slot", -1).set("stop", true);
    json.set("model", head_.model).set("tokens_predicted", told.generated);
    json.set("tokens_evaluated", evaluated).set("generation_settings", echo_.settings);
    json.set("prompt", echo_.prompts[head_.prompt_of(index)]).set("has_new_line", told.new_line);
    json.set("truncated", false).set("stop_type", told.stop_type());
    json.set("stopping_word", word ? *word : std::string());
    json.set("tokens_cached", evaluated + told.generated);
    return json.set("timings", timings_json(usage));
  }

  Json probabilities(const ChoiceDelta& delta) const {
    Json::Array entries;
    for (const TokenRecord& record : delta.tokens) {
      if (!record.logprobs) continue;
      Json::Array top;
      for (const auto& [token, value] : record.logprobs->top) top.push_back(entry(token, value));
      entries.push_back(
          entry(record.token, record.logprobs->logprob).set("top_logprobs", std::move(top)));
    }
    return Json(std::move(entries));
  }

  Json entry(TokenId token, float logprob) const {
    Json json = Json::object();
    json.set("id", token).set("token", token_text(head_, token));
    return json.set("bytes", token_bytes_json(head_, token)).set("logprob", logprob_json(logprob));
  }

  const LlamaEcho echo_;
  std::map<int32_t, Told> told_;  // by choice, of a stream
};

}  // namespace

Json timings_json(const Usage& usage) {
  const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  const auto prompts = static_cast<double>(computed);
  const auto answers = static_cast<double>(usage.completion_tokens);
  Json json = Json::object();
  json.set("cache_n", usage.cached_tokens).set("prompt_n", computed);
  json.set("prompt_ms", usage.prompt_seconds * 1e3);
  json.set("prompt_per_token_ms", ratio(usage.prompt_seconds * 1e3, prompts));
  json.set("prompt_per_second", ratio(prompts, usage.prompt_seconds));
  json.set("predicted_n", usage.completion_tokens);
  json.set("predicted_ms", usage.answer_seconds * 1e3);
  json.set("predicted_per_token_ms", ratio(usage.answer_seconds * 1e3, answers));
  return json.set("predicted_per_second", ratio(answers, usage.answer_seconds));
}

std::unique_ptr<AnswerFormat> make_llama_format(LlamaEcho echo, AnswerHead head) {
  return std::make_unique<LlamaFormat>(std::move(echo), std::move(head));
}

}  // namespace headrace
