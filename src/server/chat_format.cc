// Answers of /v1/chat/completions: "chat.completion" objects and their chunks.
#include "server/answer_format.h"
#include "server/event_frame.h"

namespace headrace {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(AnswerHead head) : AnswerFormat(std::move(head)) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    Json::Array items;
    for (size_t i = 0; i < choices.size(); ++i) {
      items.push_back(choice(static_cast<int32_t>(i), choices[i]));
    }
    Json json = envelope("chat.completion", std::move(items));
    json.set("usage", usage_json(usage)).set("system_fingerprint", head_.fingerprint);
    json.set("service_tier", head_.service_tier);
    if (head_.return_token_ids) json.set("prompt_token_ids", token_ids_json(head_.prompts[0]));
    if (head_.tell_prompt_logprobs) {
      json.set("prompt_logprobs", prompt_logprobs_json(head_, choices[0].prompt_logprobs));
    }
    return json;
  }

  // The role comes with the first result, not before: clients take that chunk for the first token.
  std::vector<Json> events(int32_t index, bool opens, const ChoiceDelta& delta) override {
    std::vector<Json> events;
    if (opens) {
      Json role = Json::object();
      role.set("role", "assistant").set("content", "");
      events.push_back(chunk(index, std::move(role), {}, false, false));
      if (head_.return_token_ids) {
        events.back().set("prompt_token_ids", token_ids_json(head_.prompts[0]));
      }
    }
    // A chunk for each thing said; tokens go with the first of them, the end with the last.
    std::vector<Json> said;
    for (const OutputEvent& event : delta.events) {
      if (auto piece = message_delta(index, event)) said.push_back(std::move(*piece));
    }
    const bool tells_tokens =
        !delta.tokens.empty() && (head_.top_logprobs >= 0 || head_.return_token_ids);
    const bool ends = delta.finish != FinishReason::kNone;
    if (said.empty() && (ends || tells_tokens)) said.push_back(Json::object());
    for (size_t i = 0; i < said.size(); ++i) {
      const bool last = i + 1 == said.size();
      events.push_back(chunk(index, std::move(said[i]), delta, i == 0, last));
    }
    return events;
  }

  // Most of a stream is words of one choice after each other.
  void append_events(std::string& out, int32_t index, bool opens, const ChoiceDelta& delta,
                     const Usage* told) override {
    const bool words = delta.events.size() == 1 && delta.finish == FinishReason::kNone &&
                       delta.events[0].kind == OutputEvent::Kind::kContent;
    if (opens || told != nullptr || !words || head_.top_logprobs >= 0 || head_.return_token_ids) {
      return AnswerFormat::append_events(out, index, opens, delta, told);
    }
    const auto place = static_cast<size_t>(index);
    if (frames_.size() <= place) frames_.resize(place + 1);
    if (frames_[place].empty()) frames_[place] = words_frame(index);
    frames_[place].append(out, delta.events[0].text);
  }

  // The event without choices carries the usage.
  void append_end(std::string& out, const Usage& usage, bool wants_usage) override {
    std::optional<Json> event;
    if (wants_usage) {
      event = envelope("chat.completion.chunk", {}).set("usage", usage_json(usage));
      event->set("system_fingerprint", head_.fingerprint);
    }
    append_openai_end(out, std::move(event));
  }

 private:
  EventFrame words_frame(int32_t index) {
    ChoiceDelta delta;
    delta.events.push_back({.kind = OutputEvent::Kind::kContent});
    std::string event;
    AnswerFormat::append_events(event, index, false, delta, nullptr);
    return {event, "content"};
  }

  Json envelope(std::string_view object, Json::Array choices) const {
    Json json = Json::object();
    json.set("id", head_.id).set("object", object).set("created", head_.created_unix_s);
    json.set("model", head_.model).set("choices", std::move(choices));
    return json;
  }

  Json choice(int32_t index, const ChoiceDelta& answer) const {
    Json json = Json::object();
    json.set("index", index).set("message", message(index, answer.events));
    json.set("logprobs", head_.top_logprobs < 0 ? Json() : logprobs(answer));
    json.set("finish_reason", finish_json(answer));
    json.set("stop_reason", stop_reason_json(answer.stop_reason));
    set_beam_score(json, answer);
    if (head_.return_token_ids) json.set("token_ids", answer_token_ids_json(answer));
    return json;
  }

  Json message(int32_t index, const OutputEvents& events) const {
    std::string content, reasoning;
    Json::Array calls;
    for (const OutputEvent& event : events) {
      switch (event.kind) {
        case OutputEvent::Kind::kContent:
          content += event.text;
          break;
        case OutputEvent::Kind::kReasoning:
          reasoning += event.text;
          break;
        case OutputEvent::Kind::kCallBegin:
          calls.push_back(call_head(index, event));
          break;
        case OutputEvent::Kind::kArguments: {
          Json function = *calls.back().find("function");
          function.set("arguments", function.find("arguments")->as_string() + event.text);
          calls.back().set("function", std::move(function));
          break;
        }
        case OutputEvent::Kind::kCallEnd:
          break;
      }
    }
    Json json = Json::object();
    const bool silent = content.empty() && !calls.empty();
    json.set("role", "assistant").set("content", silent ? Json() : Json(std::move(content)));
    json.set("refusal", Json());
    if (!reasoning.empty() && !head_.hide_reasoning) {
      json.set("reasoning", reasoning).set("reasoning_content", reasoning);
    }
    if (!calls.empty()) json.set("tool_calls", std::move(calls));
    return json;
  }

  // What an event adds to the message; nothing for the end of a call.
  std::optional<Json> message_delta(int32_t index, const OutputEvent& event) const {
    Json json = Json::object();
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        return json.set("content", event.text);
      case OutputEvent::Kind::kReasoning:
        if (head_.hide_reasoning) return std::nullopt;
        return json.set("reasoning", event.text).set("reasoning_content", event.text);
      case OutputEvent::Kind::kCallBegin: {
        Json::Object head = {{"index", event.call}};
        Json call = Json(std::move(head)).merge(std::move(call_head(index, event).as_object()));
        return json.set("tool_calls", Json::Array{std::move(call)});
      }
      case OutputEvent::Kind::kArguments: {
        Json call = Json::object().set("index", event.call);
        call.set("function", Json::object().set("arguments", event.text));
        return json.set("tool_calls", Json::Array{std::move(call)});
      }
      case OutputEvent::Kind::kCallEnd:
        return std::nullopt;
    }
    return std::nullopt;
  }

  Json call_head(int32_t index, const OutputEvent& begin) const {
    const std::string id =
        begin.call_id.empty() ? call_id(head_, index, begin.call) : begin.call_id;
    Json json = Json::object().set("id", id).set("type", "function");
    return json.set("function", Json::object().set("name", begin.text).set("arguments", ""));
  }

  static Json finish_json(const ChoiceDelta& delta) {
    if (delta.finish == FinishReason::kStop && delta.called) return "tool_calls";
    return finish_reason_json(delta.finish);
  }

  // `first`, `last`: of the chunks that one delta gives.
  Json chunk(int32_t index, Json message_delta, const ChoiceDelta& delta, bool first,
             bool last) const {
    Json json = Json::object();
    const bool tokens = first && !delta.tokens.empty();
    json.set("index", index).set("delta", std::move(message_delta));
    if (head_.top_logprobs >= 0) json.set("logprobs", tokens ? logprobs(delta) : Json());
    json.set("finish_reason", last ? finish_json(delta) : Json());
    if (last && delta.finish != FinishReason::kNone)
      json.set("stop_reason", stop_reason_json(delta.stop_reason));
    if (head_.return_token_ids && tokens) json.set("token_ids", answer_token_ids_json(delta));
    Json event = envelope("chat.completion.chunk", {std::move(json)});
    if (head_.tell_tier_in_events) event.set("service_tier", head_.service_tier);
    const bool ends = last && delta.finish != FinishReason::kNone;
    return ends ? event.set("system_fingerprint", head_.fingerprint) : event;
  }

  Json logprobs(const ChoiceDelta& delta) const {
    Json::Array content;
    for (const TokenRecord& record : delta.tokens) {
      if (!record.logprobs) continue;
      Json entry = token_entry(record.token, record.logprobs->logprob);
      Json::Array top;
      for (const auto& [token, value] : record.logprobs->top)
        top.push_back(token_entry(token, value));
      content.push_back(std::move(entry.set("top_logprobs", std::move(top))));
    }
    Json json = Json::object();
    json.set("content", std::move(content));
    return json;
  }

  Json token_entry(TokenId token, float logprob) const {
    Json json = Json::object();
    json.set("token", token_text(head_, token)).set("logprob", logprob_json(logprob));
    return json.set("bytes", token_bytes_json(head_, token));
  }

  std::vector<EventFrame> frames_;  // by choice; empty: no words yet
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head) {
  return std::make_unique<ChatFormat>(std::move(head));
}

}  // namespace headrace
