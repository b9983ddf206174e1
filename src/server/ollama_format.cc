// Answers of /api/chat and /api/generate: objects on lines of their own.
#include <chrono>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "server/error_response.h"
#include "server/ollama_format.h"

namespace headrace {
namespace {

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

class OllamaFormat final : public AnswerFormat {
 public:
  OllamaFormat(OllamaRoute route, AnswerHead head) : AnswerFormat(std::move(head)), route_(route) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    Piece piece;
    OpenCall call;
    for (const ChoiceDelta& choice : choices) add(choice, call, piece);
    Json json = line(piece, true);
    if (!choices.empty()) set_end(json, choices[0].finish, usage);
    return json;
  }

  // The last line comes with the counts, at the end of the stream. A call is told when it is whole.
  std::vector<Json> events(int32_t, bool, const ChoiceDelta& delta) override {
    Piece piece;
    add(delta, call_, piece);
    if (delta.finish != FinishReason::kNone) finish_ = delta.finish;
    if (piece.empty()) return {};
    return {line(piece, false)};
  }

  std::string_view content_type() const override { return "application/x-ndjson"; }
  void append_event(std::string& out, const Json& event) const override {
    out += write_json(event);
    out += '\n';
  }
  std::string_view ping() const override { return {}; }  // a line that says nothing is an error
  void append_end(std::string& out, const Usage& usage, bool) override {
    Json json = line({}, true);
    set_end(json, finish_, usage);
    append_event(out, json);
  }
  void append_error(std::string& out, int http_status, std::string_view message) override {
    append_event(out, error_json(ErrorForm::kOllama, http_status, message));
  }

 private:
  // What a line says.
  struct Piece {
    std::string content, thinking;
    Json::Array calls, logprobs;

    bool empty() const {
      return content.empty() && thinking.empty() && calls.empty() && logprobs.empty();
    }
  };
  struct OpenCall {
    bool open = false;
    std::string id, name, arguments;
    int32_t number = 0;
  };

  void add(const ChoiceDelta& delta, OpenCall& call, Piece& piece) const {
    piece.content += delta.text;
    for (const OutputEvent& event : delta.events) add(event, call, piece);
    if (call.open && delta.finish != FinishReason::kNone) close(call, piece);
    if (head_.top_logprobs < 0) return;
    for (const TokenRecord& record : delta.tokens) {
      if (!record.logprobs) continue;
      Json entry = entry_of(record.token, record.logprobs->logprob);
      Json::Array top;
      for (const auto& [token, value] : record.logprobs->top) top.push_back(entry_of(token, value));
      if (head_.top_logprobs > 0) entry.set("top_logprobs", std::move(top));
      piece.logprobs.push_back(std::move(entry));
    }
  }

  void add(const OutputEvent& event, OpenCall& call, Piece& piece) const {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        piece.content += event.text;
        break;
      case OutputEvent::Kind::kReasoning:
        if (!head_.hide_reasoning) piece.thinking += event.text;
        break;
      case OutputEvent::Kind::kCallBegin:
        call = {.open = true,
                .id = event.call_id.empty() ? call_id(head_, 0, event.call) : event.call_id,
                .name = event.text,
                .arguments = {},
                .number = event.call};
        break;
      case OutputEvent::Kind::kArguments:
        call.arguments += event.text;
        break;
      case OutputEvent::Kind::kCallEnd:
        close(call, piece);
        break;
    }
  }

  // Arguments are an object. Where the answer was cut inside of them they are none: what there is
  // of them is text.
  static void close(OpenCall& call, Piece& piece) {
    const Result<Json> arguments = parse_json(call.arguments.empty() ? "{}" : call.arguments);
    if (arguments.ok() && arguments->is_object()) {
      Json function = Json::object().set("index", call.number).set("name", call.name);
      function.set("arguments", *arguments);
      piece.calls.push_back(Json::object().set("id", call.id).set("function", std::move(function)));
    } else {
      piece.content += call.arguments;
    }
    call = {};
  }

  Json entry_of(TokenId token, float logprob) const {
    return Json::object()
        .set("token", token_text(head_, token))
        .set("logprob", logprob_json(logprob))
        .set("bytes", token_bytes_json(head_, token));
  }

  Json line(Piece piece, bool done) const {
    Json json = ollama_line(route_, head_.model, std::move(piece.content), done);
    Json said = Json::object();
    if (!piece.thinking.empty()) said.set("thinking", std::move(piece.thinking));
    if (!piece.calls.empty()) said.set("tool_calls", std::move(piece.calls));
    if (route_ == OllamaRoute::kChat) {
      json.set("message", Json(*json.find("message")).merge(std::move(said.as_object())));
    } else {
      json.merge(std::move(said.as_object()));
    }
    if (!piece.logprobs.empty()) json.set("logprobs", std::move(piece.logprobs));
    return json;
  }

  static void set_end(Json& json, FinishReason finish, const Usage& usage) {
    json.set("done_reason", finish_reason_json(finish));
    json.set("total_duration", nanoseconds(usage.total_seconds()));
    json.set("load_duration", nanoseconds(usage.load_seconds));
    json.set("prompt_eval_count", usage.prompt_tokens);
    json.set("prompt_eval_duration", nanoseconds(usage.prompt_seconds));
    json.set("eval_count", usage.completion_tokens);
    json.set("eval_duration", nanoseconds(usage.answer_seconds));
  }

  const OllamaRoute route_;
  OpenCall call_;  // of a stream
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace

std::string rfc3339(int64_t unix_s, int64_t microseconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(static_cast<std::time_t>(unix_s)),
                     microseconds);
}

Json ollama_line(OllamaRoute route, const std::string& model, std::string content, bool done) {
  const int64_t now = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  Json json = Json::object();
  json.set("model", model).set("created_at", rfc3339(now / 1'000'000, now % 1'000'000));
  if (route == OllamaRoute::kChat) {
    Json message = Json::object();
    message.set("role", "assistant").set("content", std::move(content));
    json.set("message", std::move(message));
  } else {
    json.set("response", std::move(content));
  }
  return json.set("done", done);
}

std::unique_ptr<AnswerFormat> make_ollama_format(OllamaRoute route, AnswerHead head) {
  return std::make_unique<OllamaFormat>(route, std::move(head));
}

}  // namespace headrace
