#include "sim/oracle_search.h"

#include <algorithm>
#include <memory>

#include "base/rng.h"

namespace headrace {

bool make_search(Request& request, uint64_t seed, int32_t width_max) {
  constexpr float kPenalties[] = {-1, 0, 1, 1, 2};
  const uint64_t bits = mix64(seed ^ mix64(static_cast<uint64_t>(request.id.value) + 0x6265616du));
  SamplingParams& sampling = request.sampling;
  if (bits % 2 == 0 || sampling.max_tokens == 0 || !request.answered.empty()) return false;
  const int32_t width = 1 + static_cast<int32_t>(bits / 2 % static_cast<uint64_t>(width_max));
  sampling.n = std::min(sampling.n, width);
  request.beams = {
      .width = width,
      .length_penalty = kPenalties[bits / 64 % std::size(kPenalties)],
      .early_stopping = kEarlyStoppings[bits / 512 % std::size(kEarlyStoppings)].value};
  return true;
}

std::vector<BeamAnswer> oracle_search(const OracleModel& model, Request request,
                                      std::span<const TokenId> end_ids, int32_t max_model_len) {
  prepare_search(request, end_ids.size());
  const auto shared = std::make_shared<const Request>(std::move(request));
  const auto room = max_model_len - static_cast<int32_t>(shared->prompt.size());
  BeamSearch search(shared, end_ids, std::min(shared->sampling.max_tokens, room));
  std::vector<OracleChain> beams = {OracleChain(*shared, shared->prompt)};
  while (!beams.empty()) {
    std::vector<TokenLogprobs> rows;
    for (const OracleChain& beam : beams) {
      rows.push_back(beam.logprobs(model, 0, shared->sampling.logprobs));
    }
    std::vector<const TokenLogprobs*> seen;
    for (const TokenLogprobs& row : rows) seen.push_back(&row);
    std::vector<OracleChain> next;
    for (const auto& [parent, token] : search.advance(seen, SIZE_MAX)) {
      next.push_back(beams[static_cast<size_t>(parent)]);
      next.back().append(token);
    }
    beams = std::move(next);
  }
  return search.answers();
}

std::string wrong_in_answer(const std::vector<BeamAnswer>& answers, const Emission& emission) {
  const auto choice = static_cast<size_t>(emission.choice);
  if (emission.finish == FinishReason::kNone) {
    return emission.prompt_logprobs.empty() ? "news of a search that goes on" : "";
  }
  if (choice >= answers.size()) {
    const bool none = emission.finish == FinishReason::kDeadEnd && emission.tokens.empty();
    return none ? "" : "an answer that the oracle does not find";
  }
  const BeamAnswer& expected = answers[choice];
  const TokenSpan tokens(emission.tokens);
  if (!std::equal(tokens.begin(), tokens.end(), expected.tokens.begin(), expected.tokens.end())) {
    return "an answer of a search is not the oracle's";
  }
  const auto same = [](const TokenLogprobs& a, const TokenLogprobs& b) {
    return a.token == b.token && a.logprob == b.logprob && a.top == b.top;
  };
  if (!std::equal(emission.logprobs.begin(), emission.logprobs.end(), expected.logprobs.begin(),
                  expected.logprobs.end(), same)) {
    return "wrong log-probabilities of an answer of a search";
  }
  if (!emission.beam_score || emission.beam_score->score != expected.score.score) {
    return "wrong score of an answer of a search";
  }
  const bool ends =
      emission.finish == expected.finish && emission.stop_token == expected.stop_token;
  return ends ? "" : "an answer of a search ends as the oracle's does not";
}

}  // namespace headrace
