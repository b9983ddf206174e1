#include "server/answer_format.h"

#include <cmath>

#include <fmt/format.h>

#include "base/rng.h"
#include "server/error_response.h"
#include "server/sse.h"
#include "text/utf8.h"

namespace headrace {

void AnswerFormat::continue_as(AnswerIdentity begun) {
  head_.id = std::move(begun.id);
  head_.created_unix_s = begun.created_unix_s;
  head_.call_id_seed = begun.call_id_seed;
}

std::string_view AnswerFormat::content_type() const { return "text/event-stream; charset=utf-8"; }

void AnswerFormat::append_begin(std::string&, const Usage&) {}

void AnswerFormat::append_events(std::string& out, int32_t index, bool opens,
                                 const ChoiceDelta& delta, const Usage* told) {
  for (Json& event : events(index, opens, delta)) {
    if (told != nullptr) event.set("usage", usage_json(*told));
    append_event(out, event);
  }
}

void AnswerFormat::append_event(std::string& out, const Json& event) const {
  append_sse_event(out, event);
}

std::string_view AnswerFormat::ping() const { return kSsePing; }

void AnswerFormat::append_error(std::string& out, int http_status, std::string_view message) {
  append_sse_event(out, error_json(http_status, message));
  out += kSseDone;
}

void append_openai_end(std::string& out, std::optional<Json> usage_event) {
  if (usage_event) append_sse_event(out, *usage_event);
  out += kSseDone;
}

Json usage_json(const Usage& usage) {
  Json json = Json::object();
  json.set("prompt_tokens", usage.prompt_tokens);
  json.set("completion_tokens", usage.completion_tokens);
  json.set("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.set("prompt_tokens_details", Json::object().set("cached_tokens", usage.cached_tokens));
  if (usage.reasoning_tokens) {
    json.set("completion_tokens_details",
             Json::object().set("reasoning_tokens", *usage.reasoning_tokens));
  }
  return json;
}

Json finish_reason_json(FinishReason reason) {
  if (reason == FinishReason::kNone) return {};
  return Json(finish_reason_name(reason));
}

Json stop_reason_json(const StopReason& reason) {
  if (const auto* text = std::get_if<std::string>(&reason)) return Json(*text);
  if (const auto* id = std::get_if<TokenId>(&reason)) return Json(*id);
  return {};
}

void set_beam_score(Json& choice, const ChoiceDelta& answer) {
  if (!answer.beam_score) return;
  choice.set("cumulative_logprob", answer.beam_score->cumulative_logprob);
  choice.set("sequence_score", answer.beam_score->score);
}

Json token_ids_json(std::span<const TokenId> ids) {
  Json::Array items;
  items.reserve(ids.size());
  for (TokenId id : ids) items.emplace_back(id);
  return Json(std::move(items));
}

Json answer_token_ids_json(const ChoiceDelta& delta) {
  Json::Array items;
  for (size_t i = delta.echoed; i < delta.tokens.size(); ++i)
    items.emplace_back(delta.tokens[i].token);
  return Json(std::move(items));
}

std::string call_id(const AnswerHead& head, int32_t choice, int32_t call) {
  static constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool nine = head.call_ids == CallIdStyle::kNine;
  std::string id = nine ? "" : "call_";
  const uint64_t stream = counter_stream(head.call_id_seed, static_cast<uint64_t>(choice));
  for (uint64_t i = 0; i < (nine ? 9 : 24); ++i) {
    id += kLetters[mix64(mix64(stream ^ static_cast<uint64_t>(call)) ^ i) % kLetters.size()];
  }
  return id;
}

Json prompt_logprobs_json(const AnswerHead& head, std::span<const TokenLogprobs> logprobs) {
  // The rank among all tokens is known of those that are among the best.
  const auto entry = [&](TokenId token, float logprob, Json rank) {
    Json json = Json::object().set("logprob", logprob_json(logprob)).set("rank", std::move(rank));
    return json.set("decoded_token", token_text(head, token));
  };
  Json::Array tokens = {Json()};
  for (const TokenLogprobs& each : logprobs) {
    Json json = Json::object();
    for (size_t i = 0; i < each.top.size(); ++i) {
      const auto& [token, logprob] = each.top[i];
      json.set(std::to_string(token), entry(token, logprob, i + 1));
    }
    const std::string own = std::to_string(each.token);
    if (!json.find(own)) json.set(own, entry(each.token, each.logprob, Json()));
    tokens.push_back(std::move(json));
  }
  return Json(std::move(tokens));
}

Json logprob_json(float logprob) {
  return Json(std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0);
}

Json token_bytes_json(const AnswerHead& head, TokenId token) {
  Json::Array bytes;
  const std::string raw = head.tokenizer ? head.tokenizer->token_bytes(token) : std::string();
  for (char c : raw) bytes.emplace_back(static_cast<int>(static_cast<unsigned char>(c)));
  return Json(std::move(bytes));
}

std::string token_text(const AnswerHead& head, TokenId token) {
  if (head.tokens_as_ids || !head.tokenizer) return fmt::format("token_id:{}", token);
  std::string bytes = head.tokenizer->token_bytes(token);
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string escaped = "bytes:";
  for (char c : bytes) escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return escaped;
}

}  // namespace headrace
