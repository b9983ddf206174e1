#include "server/response_format.h"

#include <fmt/format.h>

#include "server/answer_parts.h"
#include "server/sse.h"

namespace headrace {
namespace {

using PartKind = AnswerPart::Kind;

Json response_usage_json(const Usage& usage) {
  Json json = Json::object();
  json.set("input_tokens", usage.prompt_tokens);
  Json input = Json::object().set("cached_tokens", usage.cached_tokens);
  json.set("input_tokens_details", input.set("cache_write_tokens", 0));
  json.set("output_tokens", usage.completion_tokens);
  json.set("output_tokens_details",
           Json::object().set("reasoning_tokens", usage.reasoning_tokens.value_or(0)));
  return json.set("total_tokens", usage.prompt_tokens + usage.completion_tokens);
}

Json text_part(PartKind kind, std::string_view text) {
  if (kind == PartKind::kThought) {
    return Json::object().set("type", "reasoning_text").set("text", text);
  }
  Json part = Json::object().set("type", "output_text").set("text", text);
  return part.set("annotations", Json::array()).set("logprobs", Json::array());
}

class ResponseFormat final : public AnswerFormat {
 public:
  ResponseFormat(AnswerHead head, ResponseFrame frame)
      : AnswerFormat(std::move(head)), frame_(std::move(frame)), parts_(head_.hide_reasoning) {
    if (frame_.announce) frame_.announce(head_.id, response("queued", Json::array()));
  }

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    AnswerParts parts(head_.hide_reasoning);
    parts.take(choices[0].events);
    parts.finish(choices[0].cut());
    return ended(parts, choices[0].finish, usage);
  }

  void append_begin(std::string& out, const Usage&) override {
    begun_ = true;
    for (std::string_view type : {"response.created", "response.in_progress"}) {
      append_event(out, event(type).set("response", response("in_progress", Json::array())));
    }
  }

  std::vector<Json> events(int32_t, bool, const ChoiceDelta& delta) override {
    finish_ = delta.finish;
    cut_ = delta.cut();
    std::vector<Json> events;
    append_steps(parts_.take(delta.events), events);
    return events;
  }

  void append_event(std::string& out, const Json& event) const override {
    append_named_sse_event(out, event);
  }

  void append_end(std::string& out, const Usage& usage, bool) override {
    std::vector<Json> events;
    append_steps(parts_.finish(cut_), events);
    events.push_back(event(fmt::format("response.{}", status_of(finish_))));
    events.back().set("response", ended(parts_, finish_, usage));
    for (const Json& each : events) append_event(out, each);
  }

  // Also of a response that has waited so long that its stream was kept awake.
  void append_error(std::string& out, int, std::string_view message) override {
    if (!begun_) append_begin(out, {});
    Json failed = response("failed", output_of(parts_));
    failed.set("error", Json::object().set("code", "server_error").set("message", message));
    if (frame_.keep && frame_.keep_failed) frame_.keep(head_.id, failed, *failed.find("output"));
    Json event = Json::object().set("type", "response.failed").set("sequence_number", sequence_);
    append_event(out, event.set("response", std::move(failed)));
  }

 private:
  static std::string_view status_of(FinishReason finish) {
    if (finish == FinishReason::kLength) return "incomplete";
    return finish == FinishReason::kDeadEnd ? "failed" : "completed";
  }

  Json event(std::string_view type) {
    return Json::object().set("type", type).set("sequence_number", sequence_++);
  }

  Json response(std::string_view status, Json output) const {
    Json json = Json::object().set("id", head_.id).set("object", "response");
    json.set("created_at", head_.created_unix_s).set("status", status).set("error", Json());
    json.set("incomplete_details", Json()).set("model", head_.model);
    json.set("output", std::move(output)).set("usage", Json());
    return json.merge(frame_.request.as_object());
  }

  Json ended(const AnswerParts& parts, FinishReason finish, const Usage& usage) const {
    const Json output = output_of(parts);
    Json json = response(status_of(finish), output);
    if (finish == FinishReason::kLength) {
      json.set("incomplete_details", Json::object().set("reason", "max_output_tokens"));
    }
    if (finish == FinishReason::kDeadEnd) {
      json.set("error", Json::object().set("code", "server_error").set("message", kDeadEndMessage));
    }
    json.set("usage", response_usage_json(usage));
    if (frame_.keep) frame_.keep(head_.id, json, output);
    return json;
  }

  Json output_of(const AnswerParts& parts) const {
    Json::Array items;
    for (size_t i = 0; i < parts.parts().size(); ++i) {
      const AnswerPart& part = parts.parts()[i];
      items.push_back(item(i, part, part.complete ? "completed" : "incomplete", part.text));
    }
    return Json(std::move(items));
  }

  // By the response's own id, "resp_1234": "msg_1234_0".
  std::string item_id(size_t index, PartKind kind) const {
    const std::string_view prefix = kind == PartKind::kText      ? "msg"
                                    : kind == PartKind::kThought ? "rs"
                                                                 : "fc";
    return fmt::format("{}_{}_{}", prefix, head_.id.substr(head_.id.find('_') + 1), index);
  }

  // `text`: as far as it is told. Of an item that begins, nothing: then a text has no part either.
  Json item(size_t index, const AnswerPart& part, std::string_view status,
            std::string_view text) const {
    const bool begins = status == "in_progress";
    Json json = Json::object().set("id", item_id(index, part.kind));
    const Json content = begins ? Json::array() : Json(Json::Array{text_part(part.kind, text)});
    switch (part.kind) {
      case PartKind::kText:
        json.set("type", "message").set("role", "assistant").set("content", content);
        break;
      case PartKind::kThought:
        json.set("type", "reasoning").set("summary", Json::array()).set("content", content);
        break;
      case PartKind::kCall:
        json.set("type", "function_call").set("name", part.name).set("arguments", text);
        json.set("call_id", part.call_id.empty() ? call_id(head_, 0, part.call) : part.call_id);
        break;
    }
    return json.set("status", status);
  }

  void append_steps(std::vector<PartStep> steps, std::vector<Json>& events) {
    for (PartStep& step : steps) {
      switch (step.kind) {
        case PartStep::Kind::kBegin:
          begin_item(step.part, events);
          break;
        case PartStep::Kind::kText:
          events.push_back(item_event(step.part, "delta").set("delta", std::move(step.text)));
          if (kind_of(step.part) == PartKind::kText) events.back().set("logprobs", Json::array());
          break;
        case PartStep::Kind::kEnd:
          end_item(step.part, events);
          break;
      }
    }
  }

  PartKind kind_of(size_t part) const { return parts_.parts()[part].kind; }

  // "response.output_text.delta" and its kin.
  Json item_event(size_t index, std::string_view what) {
    const PartKind kind = kind_of(index);
    const std::string_view subject = kind == PartKind::kText      ? "output_text"
                                     : kind == PartKind::kThought ? "reasoning_text"
                                                                  : "function_call_arguments";
    Json json = event(fmt::format("response.{}.{}", subject, what));
    json.set("item_id", item_id(index, kind)).set("output_index", index);
    return kind == PartKind::kCall ? json : json.set("content_index", 0);
  }

  Json part_event(size_t index, std::string_view what, std::string_view text) {
    Json json = event(fmt::format("response.content_part.{}", what));
    json.set("item_id", item_id(index, kind_of(index))).set("output_index", index);
    return json.set("content_index", 0).set("part", text_part(kind_of(index), text));
  }

  void begin_item(size_t index, std::vector<Json>& events) {
    events.push_back(event("response.output_item.added").set("output_index", index));
    events.back().set("item", item(index, parts_.parts()[index], "in_progress", ""));
    if (kind_of(index) != PartKind::kCall) events.push_back(part_event(index, "added", ""));
  }

  void end_item(size_t index, std::vector<Json>& events) {
    const AnswerPart& part = parts_.parts()[index];
    const bool call = part.kind == PartKind::kCall;
    events.push_back(item_event(index, "done").set(call ? "arguments" : "text", part.text));
    if (part.kind == PartKind::kText) events.back().set("logprobs", Json::array());
    if (call) events.back().set("name", part.name);
    if (!call) events.push_back(part_event(index, "done", part.text));
    events.push_back(event("response.output_item.done").set("output_index", index));
    events.back().set("item",
                      item(index, part, part.complete ? "completed" : "incomplete", part.text));
  }

  const ResponseFrame frame_;
  // Of the stream:
  AnswerParts parts_;
  FinishReason finish_ = FinishReason::kNone;
  bool cut_ = false;
  int64_t sequence_ = 0;  // of the next event
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_response_format(AnswerHead head, ResponseFrame frame) {
  return std::make_unique<ResponseFormat>(std::move(head), std::move(frame));
}

}  // namespace headrace
