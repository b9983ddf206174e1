#include "sched/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

bool contains(std::span<const TokenId> list, TokenId token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

}  // namespace

// Each token that ends an answer takes a place.
int32_t candidates_per_beam(const Request& request, size_t end_ids) {
  const SamplingParams& sampling = request.sampling;
  const size_t ends = (sampling.ignore_eos ? 0 : end_ids) + sampling.stop_token_ids.size();
  return 2 * request.beams->width + static_cast<int32_t>(ends);
}

void prepare_search(Request& request, size_t end_ids) {
  // Continuations whose text ends an answer take no beam's place: as many as there may well be.
  constexpr int32_t kEndedByText = 64;
  request.lookahead = Lookahead::kAfterResult;
  request.beams->logprobs = request.sampling.logprobs;
  request.sampling.logprobs =
      candidates_per_beam(request, end_ids) + (request.answer_end != nullptr ? kEndedByText : 0);
  request.sampling.temperature = 0;
}

BeamSearch::BeamSearch(std::shared_ptr<const Request> request, std::span<const TokenId> end_ids,
                       int32_t tokens_max)
    : request_(std::move(request)),
      end_ids_(end_ids.begin(), end_ids.end()),
      tokens_max_(tokens_max),
      beams_(1) {}

std::vector<BeamSearch::Child> BeamSearch::advance(std::span<const TokenLogprobs* const> rows,
                                                   size_t places) {
  CHECK(rows.size() == beams_.size() && !rows.empty());
  const auto width = static_cast<size_t>(options().width);
  const size_t next_max = std::min(width, places);
  std::vector<Beam> next;
  std::vector<Child> children;
  size_t place = 0;
  for (const Candidate& candidate : ranked(rows)) {
    if (place >= width && next.size() >= next_max) break;
    Beam beam = extended(candidate, *rows[static_cast<size_t>(candidate.child.parent)]);
    const End end = end_of(beam);
    if (end.finish != FinishReason::kNone) {
      if (place < width) finish(std::move(beam), end);
    } else if (next.size() < next_max) {
      next.push_back(std::move(beam));
      children.push_back(candidate.child);
    }
    ++place;
  }
  beams_ = std::move(next);
  if (!over()) return children;
  beams_.clear();
  return {};
}

// All continuations, best first; of equal ones the better beam's, then the more probable token's.
std::vector<BeamSearch::Candidate> BeamSearch::ranked(
    std::span<const TokenLogprobs* const> rows) const {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto position = static_cast<int32_t>(beams_[i].tokens.size());
    for (const auto& [token, logprob] : rows[i]->top) {
      if (std::isinf(logprob) || may_not_come(token, position)) continue;
      candidates.push_back(
          {{static_cast<int32_t>(i), token}, logprob, beams_[i].sum + double{logprob}});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
  return candidates;
}

// min_tokens.
bool BeamSearch::may_not_come(TokenId token, int32_t position) const {
  const SamplingParams& sampling = request_->sampling;
  if (position >= sampling.min_tokens) return false;
  return (!sampling.ignore_eos && contains(end_ids_, token)) ||
         contains(sampling.stop_token_ids, token);
}

BeamSearch::Beam BeamSearch::extended(const Candidate& candidate, const TokenLogprobs& row) const {
  Beam beam = beams_[static_cast<size_t>(candidate.child.parent)];
  beam.tokens.push_back(candidate.child.token);
  beam.sum = candidate.sum;
  if (options().logprobs >= 0) {
    TokenLogprobs told{.token = candidate.child.token, .logprob = candidate.logprob, .top = {}};
    const auto most = std::min<size_t>(static_cast<size_t>(options().logprobs), row.top.size());
    told.top.assign(row.top.begin(), row.top.begin() + static_cast<ptrdiff_t>(most));
    beam.logprobs.push_back(std::move(told));
  }
  return beam;
}

BeamSearch::End BeamSearch::end_of(const Beam& beam) const {
  const SamplingParams& sampling = request_->sampling;
  const auto count = static_cast<int32_t>(beam.tokens.size());
  const TokenId last = beam.tokens.back();
  if (!sampling.ignore_eos && contains(end_ids_, last)) return {FinishReason::kStop, {}};
  if (contains(sampling.stop_token_ids, last)) return {FinishReason::kStop, last};
  if (request_->answer_end != nullptr && request_->answer_end->ends_with(beam.tokens)) {
    return {FinishReason::kStop, {}};
  }
  return {count >= tokens_max_ ? FinishReason::kLength : FinishReason::kNone, {}};
}

double BeamSearch::score_of(double sum, int32_t length) const {
  return sum / std::pow(static_cast<double>(length), double{options().length_penalty});
}

void BeamSearch::finish(Beam beam, const End& end) {
  const double score = score_of(beam.sum, static_cast<int32_t>(beam.tokens.size()));
  const auto at = std::find_if(answers_.begin(), answers_.end(),
                               [&](const BeamAnswer& each) { return each.score.score < score; });
  answers_.insert(at, {.tokens = std::move(beam.tokens),
                       .logprobs = std::move(beam.logprobs),
                       .score = {.cumulative_logprob = beam.sum, .score = score},
                       .finish = end.finish,
                       .stop_token = end.stop_token});
  const auto most = static_cast<size_t>(options().width);
  if (answers_.size() > most) answers_.resize(most);
}

// Scores fall as answers grow, unless the penalty makes up for it: then the longest is the best
// there can be, which only kNever asks about.
bool BeamSearch::over() const {
  if (beams_.empty()) return true;
  if (answers_.size() < static_cast<size_t>(options().width)) return false;
  if (options().early_stopping == EarlyStopping::kYes) return true;
  const bool longest =
      options().early_stopping == EarlyStopping::kNever && options().length_penalty > 0;
  const Beam& best = beams_.front();
  const auto length = longest ? tokens_max_ : static_cast<int32_t>(best.tokens.size());
  return score_of(best.sum, length) <= answers_.back().score.score;
}

}  // namespace headrace
