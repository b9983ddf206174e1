#include "server/tgi_format.h"

#include <utility>

#include "server/error_response.h"
#include "server/sse.h"
#include "text/utf8.h"

namespace headrace {
namespace {

class TgiFormat final : public AnswerFormat {
 public:
  TgiFormat(TgiEcho echo, AnswerHead head)
      : AnswerFormat(std::move(head)), echo_(std::move(echo)) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    const ChoiceDelta& answer = choices[0];
    Json json = Json::object().set("generated_text", echo_.prompt + answer.text);
    if (echo_.details) {
      Json::Array tokens, best;
      for (const TokenRecord& record : answer.tokens) {
        tokens.push_back(token_json(record));
        best.push_back(top_json(record));
      }
      Json details = details_json(answer, usage).set("prefill", Json::array());
      details.set("tokens", std::move(tokens));
      if (head_.top_logprobs > 0) details.set("top_tokens", std::move(best));
      json.set("details", std::move(details));
    }
    if (!echo_.as_list) return json;
    return Json(Json::Array{std::move(json)});
  }

  // An event a token. The last of them waits for the end, whose text and counts it tells.
  std::vector<Json> events(int32_t, bool, const ChoiceDelta& delta) override {
    said_.text += delta.text;
    said_.generated += delta.generated;
    if (delta.finish != FinishReason::kNone) {
      said_.finish = delta.finish;
      said_.stop_reason = delta.stop_reason;
    }
    std::vector<Json> events;
    for (const TokenRecord& record : delta.tokens) {
      Json event = Json::object().set("index", ++told_).set("token", token_json(record));
      if (head_.top_logprobs > 0) event.set("top_tokens", top_json(record));
      event.set("generated_text", Json()).set("details", Json());
      std::swap(event, last_);
      if (!event.is_null()) events.push_back(std::move(event));
    }
    return events;
  }

  void append_end(std::string& out, const Usage& usage, bool) override {
    if (last_.is_null()) last_ = Json::object().set("index", 0).set("token", Json());
    last_.set("generated_text", echo_.prompt + said_.text);
    append_sse_event(out, last_.set("details", details_json(said_, usage)));
  }
  void append_error(std::string& out, int http_status, std::string_view message) override {
    append_sse_event(out, error_json(ErrorForm::kTgi, http_status, message));
  }

 private:
  Json details_json(const ChoiceDelta& answer, const Usage& usage) const {
    const bool word = std::holds_alternative<std::string>(answer.stop_reason);
    std::string_view reason = word ? "stop_sequence" : "eos_token";
    if (answer.cut()) reason = "length";  // its enum has nothing else for them
    Json json = Json::object().set("finish_reason", reason);
    json.set("generated_tokens", answer.generated).set("input_length", usage.prompt_tokens);
    return json.set("seed", echo_.seed ? Json(static_cast<int64_t>(*echo_.seed)) : Json());
  }

  Json token_json(TokenId token, std::optional<float> logprob) const {
    const Tokenizer* tokenizer = head_.tokenizer;
    Json json = Json::object().set("id", token);
    json.set("text", tokenizer ? replace_invalid_utf8(tokenizer->token_bytes(token)) : "");
    json.set("logprob", logprob ? logprob_json(*logprob) : Json());
    return json.set("special", tokenizer && tokenizer->is_control(token));
  }
  Json token_json(const TokenRecord& record) const {
    const auto& logprobs = record.logprobs;
    return token_json(record.token, logprobs ? std::optional(logprobs->logprob) : std::nullopt);
  }
  Json top_json(const TokenRecord& record) const {
    Json::Array top;
    if (record.logprobs) {
      for (const auto& [token, value] : record.logprobs->top) {
        top.push_back(token_json(token, value));
      }
    }
    return Json(std::move(top));
  }

  const TgiEcho echo_;
  // Of a stream.
  ChoiceDelta said_;
  int32_t told_ = 0;
  Json last_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_tgi_format(TgiEcho echo, AnswerHead head) {
  return std::make_unique<TgiFormat>(std::move(echo), std::move(head));
}

}  // namespace headrace
