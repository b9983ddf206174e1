#include "server/messages_format.h"

#include "server/answer_parts.h"
#include "server/error_response.h"
#include "server/sse.h"

namespace headrace {
namespace {

constexpr std::string_view kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

Json event_of(std::string_view type) { return Json::object().set("type", type); }

// Tokens that the prefix cache had are not among input_tokens. What is computed goes into the cache
// without being asked for, so that nothing is created at a price.
Json messages_usage_json(const Usage& usage) {
  Json json = Json::object();
  json.set("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.set("cache_creation_input_tokens", 0);
  json.set("cache_read_input_tokens", usage.cached_tokens);
  json.set("output_tokens", usage.completion_tokens);
  if (usage.reasoning_tokens) {
    json.set("output_tokens_details",
             Json::object().set("thinking_tokens", *usage.reasoning_tokens));
  }
  return json;
}

class MessagesFormat final : public AnswerFormat {
 public:
  MessagesFormat(AnswerHead head, MessageBounds bounds)
      : AnswerFormat(std::move(head)), bounds_(bounds), parts_(head_.hide_reasoning) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    const ChoiceDelta& answer = choices[0];
    AnswerParts parts(head_.hide_reasoning);
    parts.take(answer.events);
    parts.finish(answer.cut());
    Json::Array content;
    for (const AnswerPart& part : parts.parts()) {
      if (auto block = whole_block(part, answer)) content.push_back(std::move(*block));
    }
    return message(std::move(content), end_json(answer, usage), usage);
  }

  void append_begin(std::string& out, const Usage& usage) override {
    const Json end = Json::object().set("stop_reason", Json()).set("stop_sequence", Json());
    append_event(out, event_of("message_start").set("message", message({}, end, usage)));
  }

  std::vector<Json> events(int32_t, bool, const ChoiceDelta& delta) override {
    end_.finish = delta.finish;
    end_.called = delta.called;
    end_.stop_reason = delta.stop_reason;
    std::vector<Json> events;
    append_steps(parts_.take(delta.events), events);
    return events;
  }

  void append_event(std::string& out, const Json& event) const override {
    append_named_sse_event(out, event);
  }
  std::string_view ping() const override { return kPing; }

  void append_end(std::string& out, const Usage& usage, bool) override {
    std::vector<Json> events;
    append_steps(parts_.finish(end_.cut()), events);
    events.push_back(event_of("message_delta").set("delta", end_json(end_, usage)));
    events.back().set("usage", messages_usage_json(usage));
    events.push_back(event_of("message_stop"));
    for (const Json& event : events) append_event(out, event);
  }

  void append_error(std::string& out, int http_status, std::string_view message) override {
    append_event(out, error_json(ErrorForm::kAnthropic, http_status, message));
  }

 private:
  Json message(Json::Array content, const Json& end, const Usage& usage) const {
    Json json = Json::object().set("id", head_.id).set("type", "message").set("role", "assistant");
    json.set("model", head_.model).set("content", std::move(content));
    json.merge(end.as_object());
    return json.set("usage", messages_usage_json(usage));
  }

  // stop_reason, and which of the request's stop_sequences it was.
  Json end_json(const ChoiceDelta& answer, const Usage& usage) const {
    const bool stopped = answer.finish == FinishReason::kStop && !answer.called;
    const Json sequence = stopped ? stop_reason_json(answer.stop_reason) : Json();
    Json json = Json::object().set("stop_reason", stop_name(answer, sequence, usage));
    return json.set("stop_sequence", sequence);
  }

  std::string_view stop_name(const ChoiceDelta& answer, const Json& sequence,
                             const Usage& usage) const {
    if (answer.finish == FinishReason::kStop) {
      if (answer.called) return "tool_use";
      return sequence.is_null() ? "end_turn" : "stop_sequence";
    }
    // What the API has for an answer that is not of its form, and that no larger max_tokens helps.
    if (answer.finish == FinishReason::kDeadEnd) return "refusal";
    const bool context_full = usage.prompt_tokens + usage.completion_tokens >= bounds_.context &&
                              usage.completion_tokens < bounds_.max_tokens;
    return context_full ? "model_context_window_exceeded" : "max_tokens";
  }

  // A part as it begins.
  Json empty_block(const AnswerPart& part) const {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        return event_of("text").set("text", "");
      case AnswerPart::Kind::kThought:
        return event_of("thinking").set("thinking", "").set("signature", "");
      case AnswerPart::Kind::kCall:
        break;
    }
    const std::string id = part.call_id.empty() ? call_id(head_, 0, part.call) : part.call_id;
    Json block = event_of("tool_use").set("id", id).set("name", part.name);
    return block.set("input", Json::object());
  }

  // Nothing for a call that was cut: whoever looks at blocks alone would run it. One that the model
  // ended badly is a call without arguments, of which its tool says what it lacks.
  std::optional<Json> whole_block(const AnswerPart& part, const ChoiceDelta& answer) const {
    Json block = empty_block(part);
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        return block.set("text", part.text);
      case AnswerPart::Kind::kThought:
        return block.set("thinking", part.text).set("signature", signature());
      case AnswerPart::Kind::kCall:
        break;
    }
    if (part.complete) return block.set("input", *parse_json(part.text));
    const bool cut = answer.cut() || std::holds_alternative<std::string>(answer.stop_reason);
    return cut ? std::nullopt : std::optional(std::move(block));
  }

  // What thoughts are signed with says whose they are, and is not looked at when they come back.
  const std::string& signature() const { return head_.id; }

  void append_steps(std::vector<PartStep> steps, std::vector<Json>& events) {
    for (PartStep& step : steps) {
      const AnswerPart& part = parts_.parts()[step.part];
      const auto push = [&](std::string_view type) -> Json& {
        events.push_back(event_of(type).set("index", step.part));
        return events.back();
      };
      switch (step.kind) {
        case PartStep::Kind::kBegin:
          push("content_block_start").set("content_block", empty_block(part));
          if (step.part == 0) events.push_back(event_of("ping"));
          break;
        case PartStep::Kind::kText:
          push("content_block_delta").set("delta", delta_of(part.kind, std::move(step.text)));
          break;
        case PartStep::Kind::kEnd:
          if (part.kind == AnswerPart::Kind::kThought) {
            push("content_block_delta")
                .set("delta", event_of("signature_delta").set("signature", signature()));
          }
          push("content_block_stop");
          break;
      }
    }
  }

  static Json delta_of(AnswerPart::Kind kind, std::string text) {
    switch (kind) {
      case AnswerPart::Kind::kText:
        return event_of("text_delta").set("text", std::move(text));
      case AnswerPart::Kind::kThought:
        return event_of("thinking_delta").set("thinking", std::move(text));
      case AnswerPart::Kind::kCall:
        break;
    }
    return event_of("input_json_delta").set("partial_json", std::move(text));
  }

  const MessageBounds bounds_;
  AnswerParts parts_;  // of the stream
  ChoiceDelta end_;    // how the stream's answer ended
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_format(AnswerHead head, MessageBounds bounds) {
  return std::make_unique<MessagesFormat>(std::move(head), bounds);
}

}  // namespace headrace
