#include "server/answer_format.h"

#include <cmath>

#include <fmt/format.h>

#include "base/rng.h"
#include "text/utf8.h"

namespace headrace {

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

Json logprob_json(float logprob) {
  return Json(std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0);
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
