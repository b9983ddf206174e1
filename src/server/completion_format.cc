// Answers of /v1/completions: "text_completion" objects.
#include "server/answer_format.h"
#include "server/event_frame.h"

namespace headrace {
namespace {

class CompletionFormat final : public AnswerFormat {
 public:
  explicit CompletionFormat(AnswerHead head) : AnswerFormat(std::move(head)) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    Json::Array items;
    for (size_t i = 0; i < choices.size(); ++i) {
      items.push_back(choice(static_cast<int32_t>(i), true, choices[i]));
    }
    Json json = envelope(std::move(items));
    return json.set("usage", usage_json(usage)).set("system_fingerprint", head_.fingerprint);
  }

  std::vector<Json> events(int32_t index, bool opens, const ChoiceDelta& delta) override {
    if (says_nothing(opens, delta)) return {};
    Json event = envelope({choice(index, opens, delta)});
    if (delta.finish != FinishReason::kNone) event.set("system_fingerprint", head_.fingerprint);
    return {std::move(event)};
  }

  // Most of a stream is text of one choice after each other.
  void append_events(std::string& out, int32_t index, bool opens, const ChoiceDelta& delta,
                     const Usage* told) override {
    if (says_nothing(opens, delta)) return;
    if (told != nullptr || delta.finish != FinishReason::kNone || head_.top_logprobs >= 0 ||
        head_.return_token_ids) {
      return AnswerFormat::append_events(out, index, opens, delta, told);
    }
    const auto place = static_cast<size_t>(index);
    if (frames_.size() <= place) frames_.resize(place + 1);
    if (frames_[place].empty()) frames_[place] = text_frame(index);
    frames_[place].append(out, delta.text);
  }

  void append_end(std::string& out, const Usage& usage, bool wants_usage) override {
    std::optional<Json> event;
    if (wants_usage) {
      event = envelope({}).set("usage", usage_json(usage));
      event->set("system_fingerprint", head_.fingerprint);
    }
    append_openai_end(out, std::move(event));
  }

 private:
  // The ids of the prompt come with the first event, also where its text is held back.
  bool says_nothing(bool opens, const ChoiceDelta& delta) const {
    return delta.empty() && !(opens && head_.return_token_ids);
  }

  EventFrame text_frame(int32_t index) const {
    std::string event;
    append_event(event, envelope({choice(index, false, {})}));
    return {event, "text"};
  }

  Json envelope(Json::Array choices) const {
    Json json = Json::object();
    json.set("id", head_.id).set("object", "text_completion").set("created", head_.created_unix_s);
    json.set("model", head_.model).set("choices", std::move(choices));
    return json;
  }

  Json choice(int32_t index, bool opens, const ChoiceDelta& delta) const {
    Json json = Json::object();
    json.set("index", index).set("text", delta.text);
    json.set("logprobs", head_.top_logprobs < 0 ? Json() : logprobs(delta));
    json.set("finish_reason", finish_reason_json(delta.finish));
    json.set("stop_reason", stop_reason_json(delta.stop_reason));
    set_beam_score(json, delta);
    if (head_.tell_prompt_logprobs) {
      json.set("prompt_logprobs", prompt_logprobs_json(head_, delta.prompt_logprobs));
    }
    if (head_.return_token_ids) {
      const auto prompt = head_.prompt_of(index);
      json.set("token_ids", answer_token_ids_json(delta));
      if (opens) json.set("prompt_token_ids", token_ids_json(head_.prompts[prompt]));
    }
    return json;
  }

  // Four arrays side by side, one entry per token.
  Json logprobs(const ChoiceDelta& delta) const {
    Json::Array offsets, values, tokens, tops;
    for (const TokenRecord& record : delta.tokens) {
      offsets.emplace_back(record.offset);
      tokens.emplace_back(token_text(head_, record.token));
      values.push_back(record.logprobs ? logprob_json(record.logprobs->logprob) : Json());
      tops.push_back(record.logprobs ? top(record) : Json());
    }
    Json json = Json::object();
    json.set("text_offset", std::move(offsets)).set("token_logprobs", std::move(values));
    json.set("tokens", std::move(tokens)).set("top_logprobs", std::move(tops));
    return json;
  }

  // The k best, and the chosen token where it is not among them.
  Json top(const TokenRecord& record) const {
    Json json = Json::object();
    for (const auto& [token, value] : record.logprobs->top) {
      const std::string text = token_text(head_, token);
      if (!json.find(text)) json.set(text, logprob_json(value));
    }
    const std::string text = token_text(head_, record.token);
    if (!json.find(text)) json.set(text, logprob_json(record.logprobs->logprob));
    return json;
  }

  std::vector<EventFrame> frames_;  // by choice; empty: no text yet
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head) {
  return std::make_unique<CompletionFormat>(std::move(head));
}

}  // namespace headrace
