#include "sched/beam_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

// A sequence of the search that holds none of its beams; null: there is none.
Sequence* spare_sequence(const RequestEntry& entry, const std::vector<Sequence*>& taken) {
  for (Sequence* each : entry.choices) {
    if (each == nullptr || std::find(taken.begin(), taken.end(), each) != taken.end()) continue;
    return each;
  }
  return nullptr;
}

bool has_candidates(Sequence* beam) { return beam->is<Decoding>() && beam->decoding().candidates; }

}  // namespace

void BeamReader::take(Sequence& beam, const StepResult::Row& row) {
  CHECK(row.logprobs.size() == 1);
  if (!beam.is<Decoding>()) return;
  beam.decoding().candidates = row.logprobs.front();
  touched_.insert(beam.request->id);
}

void BeamReader::advance(double now_seconds, std::vector<Emission>& out) {
  for (const RequestId id : std::exchange(touched_, {})) {
    const auto found = table_.requests().find(id);
    if (found == table_.requests().end()) continue;  // a fault has ended it
    const RunningSearch& running = *found->second.search;
    const bool ready = std::all_of(running.beams.begin(), running.beams.end(), has_candidates);
    if (ready) advance(*running.beams.front()->entry, now_seconds, out);
  }
}

void BeamReader::advance(RequestEntry& entry, double now_seconds, std::vector<Emission>& out) {
  RunningSearch& running = *entry.search;
  std::vector<const TokenLogprobs*> rows;
  for (Sequence* beam : running.beams) rows.push_back(&*beam->decoding().candidates);
  const auto children = running.search.advance(rows, static_cast<size_t>(entry.unfinished));
  if (children.empty()) return finish(entry, out);
  move_on(entry, children, now_seconds);
}

// The first child of a beam stays on its pages, all others take the place of beams without one. Of
// a narrow search, where texts or a small vocabulary leave fewer beams than there were, the rest
// ends.
void BeamReader::move_on(RequestEntry& entry, const std::vector<BeamSearch::Child>& children,
                         double now_seconds) {
  std::vector<Sequence*>& beams = entry.search->beams;
  const auto parent_of = [&](const BeamSearch::Child& child) {
    return beams[static_cast<size_t>(child.parent)];
  };
  std::vector<Sequence*> next(children.size(), nullptr), taken;
  for (size_t i = 0; i < children.size(); ++i) {
    Sequence* parent = parent_of(children[i]);
    if (std::find(taken.begin(), taken.end(), parent) != taken.end()) continue;
    taken.push_back(next[i] = parent);
  }
  for (size_t i = 0; i < children.size(); ++i) {
    if (next[i] != nullptr) continue;
    Sequence* const spare = spare_sequence(entry, taken);
    CHECK_MSG(spare != nullptr, "a search has more beams than sequences");
    table_.move_beam(*parent_of(children[i]), *spare);
    taken.push_back(next[i] = spare);
  }
  for (size_t i = 0; i < children.size(); ++i) {
    Sequence& beam = *next[i];
    if (beam.output.empty()) beam.first_token_seconds = now_seconds;
    // The device goes on with the token that its row sampled.
    Decoding& decoding = beam.decoding();
    const bool sampled = decoding.candidates && decoding.candidates->token == children[i].token;
    if (!sampled && !decoding.moved_to) decoding.moved_to = beam.blocks.table();
    beam.output.push_back(children[i].token);
  }
  for (Sequence* beam : beams) beam->decoding().candidates.reset();
  beams = std::move(next);
  tokens_ += children.size();
  while (Sequence* spare = spare_sequence(entry, taken)) table_.end_choice(*spare);
}

void BeamReader::finish(RequestEntry& entry, std::vector<Emission>& out) {
  const Request& request = *entry.request;
  const std::vector<BeamAnswer>& answers = entry.search->search.answers();
  for (int32_t i = 0; i < request.sampling.n; ++i) {
    Emission& emission = out.emplace_back();
    emission.request = request.id;
    emission.owner = request.owner;
    emission.choice = i;
    emission.cached_tokens = entry.cached_tokens;
    emission.finish = FinishReason::kDeadEnd;  // of a vocabulary that has no so many answers
    if (static_cast<size_t>(i) >= answers.size()) continue;
    const BeamAnswer& answer = answers[static_cast<size_t>(i)];
    for (const TokenId token : answer.tokens) emission.tokens.push_back(token);
    emission.logprobs = answer.logprobs;
    emission.finish = answer.finish;
    emission.stop_token = answer.stop_token;
    emission.beam_score = answer.score;
  }
  Sequence& first = *entry.search->beams.front();
  policy_.note(SequenceEvent::kFinished, first);
  admission_.answer_ended(first);
  end_all(entry);
}

void BeamReader::fault(RequestEntry& entry, std::vector<Emission>& out) {
  for (int32_t i = 0; i < entry.request->sampling.n; ++i) {
    out.push_back({.request = entry.request->id,
                   .owner = entry.request->owner,
                   .choice = i,
                   .finish = FinishReason::kFault});
  }
  end_all(entry);
}

// The last one takes the entry with it.
void BeamReader::end_all(RequestEntry& entry) {
  const std::vector<Sequence*> choices = entry.choices;
  for (Sequence* each : choices) {
    if (each != nullptr) table_.end_choice(*each);
  }
}

}  // namespace headrace
