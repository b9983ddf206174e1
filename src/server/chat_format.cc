// Answers of /v1/chat/completions: "chat.completion" objects and their chunks.
#include "server/answer_format.h"

namespace headrace {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(AnswerHead head) : head_(std::move(head)) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    Json::Array items;
    for (size_t i = 0; i < choices.size(); ++i) {
      items.push_back(choice(static_cast<int32_t>(i), choices[i]));
    }
    Json json = envelope("chat.completion", std::move(items));
    json.set("usage", usage_json(usage));
    if (head_.return_token_ids) json.set("prompt_token_ids", token_ids_json(head_.prompts[0]));
    return json;
  }

  // The role comes with the first result, not before: clients take that chunk for the first token.
  std::vector<Json> events(int32_t index, bool opens, const ChoiceDelta& delta) const override {
    std::vector<Json> events;
    if (opens) {
      Json role = Json::object();
      role.set("role", "assistant").set("content", "");
      events.push_back(chunk(index, std::move(role), {}));
      if (head_.return_token_ids) {
        events.back().set("prompt_token_ids", token_ids_json(head_.prompts[0]));
      }
    }
    if (delta.empty()) return events;
    Json content = Json::object();
    if (!delta.text.empty() || delta.finish == FinishReason::kNone)
      content.set("content", delta.text);
    events.push_back(chunk(index, std::move(content), delta));
    return events;
  }

  Json usage_event(const Usage& usage) const override {
    Json json = envelope("chat.completion.chunk", {});
    json.set("usage", usage_json(usage));
    return json;
  }

 private:
  Json envelope(std::string_view object, Json::Array choices) const {
    Json json = Json::object();
    json.set("id", head_.id).set("object", object).set("created", head_.created_unix_s);
    json.set("model", head_.model).set("choices", std::move(choices));
    return json;
  }

  Json choice(int32_t index, const ChoiceDelta& answer) const {
    Json message = Json::object();
    message.set("role", "assistant").set("content", answer.text).set("refusal", Json());
    Json json = Json::object();
    json.set("index", index).set("message", std::move(message));
    json.set("logprobs", head_.top_logprobs < 0 ? Json() : logprobs(answer));
    json.set("finish_reason", finish_reason_json(answer.finish));
    json.set("stop_reason", stop_reason_json(answer.stop_reason));
    if (head_.return_token_ids) json.set("token_ids", answer_token_ids_json(answer));
    return json;
  }

  Json chunk(int32_t index, Json message_delta, const ChoiceDelta& delta) const {
    Json json = Json::object();
    json.set("index", index).set("delta", std::move(message_delta));
    if (head_.top_logprobs >= 0)
      json.set("logprobs", delta.tokens.empty() ? Json() : logprobs(delta));
    json.set("finish_reason", finish_reason_json(delta.finish));
    if (delta.finish != FinishReason::kNone)
      json.set("stop_reason", stop_reason_json(delta.stop_reason));
    if (head_.return_token_ids && !delta.tokens.empty())
      json.set("token_ids", answer_token_ids_json(delta));
    return envelope("chat.completion.chunk", {std::move(json)});
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
    Json::Array bytes;
    const std::string raw = head_.tokenizer ? head_.tokenizer->token_bytes(token) : std::string();
    for (char c : raw) bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
    Json json = Json::object();
    json.set("token", token_text(head_, token)).set("logprob", logprob_json(logprob));
    json.set("bytes", std::move(bytes));
    return json;
  }

  const AnswerHead head_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head) {
  return std::make_unique<ChatFormat>(std::move(head));
}

}  // namespace headrace
