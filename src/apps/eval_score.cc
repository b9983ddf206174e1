#include "apps/eval_score.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/request_reader.h"
#include "base/json.h"

namespace headrace {
namespace {

struct ScoreLine {
  Json id;
  std::vector<TokenId> prompt;
};

Result<ScoreLine> parse_line(std::string_view text) {
  HR_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  const Json* ids = json.find("prompt_ids");
  if (ids == nullptr || !ids->is_array() || ids->as_array().empty()) {
    return invalid_argument("prompt_ids must be an array of token ids, and not empty");
  }
  ScoreLine line;
  if (const Json* id = json.find("id")) line.id = *id;
  for (const Json& id : ids->as_array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX) {
      return invalid_argument("prompt_ids must hold token ids only");
    }
    line.prompt.push_back(static_cast<TokenId>(id.as_int()));
  }
  return line;
}

Json entry_json(const TokenLogprobs& entry) {
  Json top = Json::array();
  for (const auto& [token, logprob] : entry.top) {
    top.push(Json(Json::Array{token, static_cast<double>(logprob)}));
  }
  return Json::object()
      .set("token", entry.token)
      .set("logprob", static_cast<double>(entry.logprob))
      .set("top", std::move(top));
}

struct Scoring {
  Json id;
  std::unique_ptr<RequestReader> reader;
};

Result<Scoring> submit(ModelStack& stack, ScoreLine line, const ScoreOptions& options) {
  Request request{.prompt = std::move(line.prompt)};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = options.max_tokens;
  request.sampling.prompt_logprobs = options.top;
  if (options.max_tokens > 0) request.sampling.logprobs = options.top;
  HR_ASSIGN_OR_RETURN(auto reader, RequestReader::submit(stack.engine(), std::move(request)));
  return Scoring{std::move(line.id), std::move(reader)};
}

Result<std::string> finish(Scoring scoring, const ScoreOptions& options) {
  Json prompt = Json(Json::Array{Json()}), tokens = Json::array(), logprobs = Json::array();
  FinishReason reason = FinishReason::kAbort;
  while (const std::optional<Emission> emission = scoring.reader->next()) {
    for (const TokenLogprobs& entry : emission->prompt_logprobs) prompt.push(entry_json(entry));
    for (TokenId token : emission->tokens) tokens.push(token);
    for (const TokenLogprobs& entry : emission->logprobs) logprobs.push(entry_json(entry));
    reason = emission->finish;
  }
  if (reason == FinishReason::kAbort || reason == FinishReason::kFault) {
    return internal_error(fmt::format("id {}: the request ended with '{}'", write_json(scoring.id),
                                      finish_reason_name(reason)));
  }
  Json line = Json::object().set("id", scoring.id).set("prompt_logprobs", std::move(prompt));
  if (options.max_tokens > 0) {
    line.set("tokens", std::move(tokens)).set("logprobs", std::move(logprobs));
  }
  return write_json(line);
}

}  // namespace

Status score_lines(ModelStack& stack, std::string_view lines, const ScoreOptions& options,
                   const std::function<void(std::string_view line)>& print) {
  const auto in_flight_max = static_cast<size_t>(stack.engine().options().scheduler.max_num_seqs);
  std::deque<Scoring> in_flight;
  const auto finish_first = [&]() -> Status {
    HR_ASSIGN_OR_RETURN(const std::string line, finish(std::move(in_flight.front()), options));
    in_flight.pop_front();
    print(line);
    return ok_status();
  };
  for (int number = 1; !lines.empty(); ++number) {
    const std::string_view text = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(text.size() + 1, lines.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<ScoreLine> line = parse_line(text);
    if (!line.ok()) return line.status().with_context(fmt::format("line {}", number));
    if (in_flight.size() == in_flight_max) HR_RETURN_IF_ERROR(finish_first());
    Result<Scoring> scoring = submit(stack, std::move(*line), options);
    if (!scoring.ok()) return scoring.status().with_context(fmt::format("line {}", number));
    in_flight.push_back(std::move(*scoring));
  }
  while (!in_flight.empty()) HR_RETURN_IF_ERROR(finish_first());
  return ok_status();
}

}  // namespace headrace
