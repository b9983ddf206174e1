#include "server/sglang_format.h"

#include <map>

#include <fmt/format.h>

#include "server/sse.h"

namespace headrace {
namespace {

class SglangFormat final : public AnswerFormat {
 public:
  SglangFormat(SglangEcho echo, AnswerHead head)
      : AnswerFormat(std::move(head)), echo_(std::move(echo)) {}

  Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const override {
    Json::Array answers;
    for (size_t i = 0; i < choices.size(); ++i) {
      answers.push_back(answer(static_cast<int32_t>(i), choices[i], &usage));
    }
    if (!echo_.is_list) return std::move(answers[0]);
    return Json(std::move(answers));
  }

  std::vector<Json> events(int32_t index, bool, const ChoiceDelta& delta) override {
    ChoiceDelta& said = said_[index];
    said.append(delta);
    if (said.finish != FinishReason::kNone) return {};  // the last one tells of the time, too
    Json json = answer(index, said, nullptr);
    if (echo_.is_list) json.set("index", index);
    return {std::move(json)};
  }

  void append_end(std::string& out, const Usage& usage, bool) override {
    for (const auto& [index, said] : said_) {
      Json json = answer(index, said, &usage);
      if (echo_.is_list) json.set("index", index);
      append_sse_event(out, json);
    }
    out += kSseDone;
  }

 private:
  // `usage`: of the last. Log-probabilities come with it alone: repeated with every token they
  // would be more work than the answer.
  Json answer(int32_t index, const ChoiceDelta& said, const Usage* usage) const {
    Json meta = Json::object();
    std::string id = echo_.id.empty() ? head_.id : echo_.id;
    if (echo_.is_list) id += fmt::format("-{}", index);
    meta.set("id", std::move(id)).set("finish_reason", finish_json(said));
    meta.set("prompt_tokens", head_.prompt_tokens[head_.prompt_of(index)]);
    meta.set("completion_tokens", said.generated);
    if (usage) {
      meta.set("cached_tokens", usage->cached_tokens).set("e2e_latency", usage->total_seconds());
    }
    if (usage && head_.top_logprobs >= 0) set_logprobs(meta, said);
    Json json = Json::object();
    json.set("text", said.text).set("output_ids", answer_token_ids_json(said));
    return json.set("meta_info", std::move(meta));
  }

  static Json finish_json(const ChoiceDelta& said) {
    if (said.finish == FinishReason::kNone) return {};
    if (said.finish == FinishReason::kLength) {
      return Json::object().set("type", "length").set("length", said.generated);
    }
    if (said.finish == FinishReason::kRepetition) {
      return Json::object().set("type", finish_reason_name(said.finish));
    }
    if (said.finish == FinishReason::kDeadEnd) {
      return Json::object().set("type", "abort").set("message", kDeadEndMessage);
    }
    Json json = Json::object().set("type", "stop");
    if (std::holds_alternative<std::monostate>(said.stop_reason)) {
      return said.tokens.empty() ? json : json.set("matched", said.tokens.back().token);
    }
    return json.set("matched", stop_reason_json(said.stop_reason));
  }

  // [log-probability, id, null] of each token, and lists of them of the best.
  void set_logprobs(Json& meta, const ChoiceDelta& said) const {
    const auto entry = [](TokenId token, float logprob) {
      return Json(Json::Array{logprob_json(logprob), Json(token), Json()});
    };
    Json::Array chosen, best;
    for (const TokenRecord& record : said.tokens) {
      if (!record.logprobs) continue;
      chosen.push_back(entry(record.token, record.logprobs->logprob));
      Json::Array top;
      for (const auto& [token, value] : record.logprobs->top) top.push_back(entry(token, value));
      best.emplace_back(std::move(top));
    }
    meta.set("output_token_logprobs", std::move(chosen));
    if (head_.top_logprobs > 0) meta.set("output_top_logprobs", std::move(best));
  }

  const SglangEcho echo_;
  std::map<int32_t, ChoiceDelta> said_;  // by choice, of a stream
};

}  // namespace

std::unique_ptr<AnswerFormat> make_sglang_format(SglangEcho echo, AnswerHead head) {
  return std::make_unique<SglangFormat>(std::move(echo), std::move(head));
}

}  // namespace headrace
