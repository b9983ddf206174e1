// Beam search of one request: which continuations of its beams go on, which are finished answers,
// and when no better one is to be had. Numbers alone: it knows no pages and no scheduler.
//
// The rules are those of transformers' generate(num_beams=...) (GenerationMixin._beam_search), so
// that both find the same answers with the same scores. Of all continuations of all beams, in the
// order of their summed ln p, the first `width` that end are finished answers, and the first
// `width` that do not end are the next beams. An answer of L tokens, its end id among them, scores
// its sum / L^length_penalty; the `width` best are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/logprobs.h"
#include "sched/request.h"

namespace headrace {

// A finished answer.
struct BeamAnswer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;  // per token, where they are asked for
  BeamScore score;
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_token;  // the stop_token_ids entry that ended it
};

class BeamSearch {
 public:
  // It begins with one beam, of no token. `tokens_max`: the longest answer.
  BeamSearch(std::shared_ptr<const Request> request, std::span<const TokenId> end_ids,
             int32_t tokens_max);

  size_t beam_count() const { return beams_.size(); }

  // A beam that goes on: the one at place `parent` of those before, and a token.
  struct Child {
    int32_t parent = 0;
    TokenId token = -1;
  };
  // One token further. `rows`: of each beam, what may follow it (candidates_per_beam() best first,
  // or the whole vocabulary). Returns the next beams, best first, at most `places`; empty: the
  // search is over. REQUIRES: rows.size() == beam_count() > 0
  std::vector<Child> advance(std::span<const TokenLogprobs* const> rows, size_t places);

  // The finished answers so far, best first; at most `width`.
  const std::vector<BeamAnswer>& answers() const { return answers_; }

 private:
  struct Beam {
    std::vector<TokenId> tokens;
    std::vector<TokenLogprobs> logprobs;
    double sum = 0;  // of ln p
  };
  struct Candidate {
    Child child;
    float logprob = 0;
    double sum = 0;
  };
  struct End {
    FinishReason finish = FinishReason::kNone;
    std::optional<TokenId> stop_token;
  };
  const BeamOptions& options() const { return *request_->beams; }
  std::vector<Candidate> ranked(std::span<const TokenLogprobs* const> rows) const;
  Beam extended(const Candidate& candidate, const TokenLogprobs& row) const;
  bool may_not_come(TokenId token, int32_t position) const;
  End end_of(const Beam& beam) const;
  double score_of(double sum, int32_t length) const;
  void finish(Beam beam, const End& end);
  bool over() const;

  const std::shared_ptr<const Request> request_;
  const std::vector<TokenId> end_ids_;
  const int32_t tokens_max_;
  std::vector<Beam> beams_;  // best first
  std::vector<BeamAnswer> answers_;
};

// Of each beam, so many of its best continuations decide a step, whatever of them ends.
int32_t candidates_per_beam(const Request& request, size_t end_ids);

// What a search asks of the scheduler and of sampling: results before plans, and the candidates'
// log-probabilities. REQUIRES: request.beams
void prepare_search(Request& request, size_t end_ids);

}  // namespace headrace
