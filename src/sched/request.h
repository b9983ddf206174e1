// A request as the scheduler sees it: ids and numbers, no text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/adapter.h"
#include "base/answer_end.h"
#include "base/ids.h"
#include "base/inline_vector.h"
#include "base/logprobs.h"
#include "base/named.h"
#include "base/sampling_params.h"
#include "base/token_constraint.h"

namespace headrace {

// When a sequence's next step may be planned, where steps overlap.
enum class Lookahead : uint8_t {
  kBlind,        // before the token that the last one samples is known
  kAfterResult,  // behind its result, which decides what is computed next (a grammar, beams)
};

// When a beam search ends that has as many finished answers as beams (transformers'
// early_stopping).
enum class EarlyStopping : uint8_t {
  kNo,     // when the best beam, as long as it is, scores no better than the worst of them
  kYes,    // at once
  kNever,  // when no beam can score better, however long it gets
};
inline constexpr Named<EarlyStopping> kEarlyStoppings[] = {
    {"false", EarlyStopping::kNo}, {"true", EarlyStopping::kYes}, {"never", EarlyStopping::kNever}};

// A request whose answers are searched for and not sampled (sched/beam_search.h).
struct BeamOptions {
  int32_t width = 1;         // beams: sequences that go on in each step, >= SamplingParams::n
  float length_penalty = 1;  // an answer of L tokens scores ln p / L^penalty
  EarlyStopping early_stopping = EarlyStopping::kNo;
  int32_t logprobs = -1;  // SamplingParams::logprobs as asked for; the scheduler sets it
};

struct Request {
  RequestId id;                 // unique for the life of the process
  std::vector<TokenId> prompt;  // not empty
  SamplingParams sampling;      // checked by the API; seed is set
  int32_t priority = 0;         // policy priority: lower value first
  int32_t slo_class = 0;        // policy deadline: index into SchedulerOptions::slo_classes
  std::string tenant;           // policy fair: whose share it takes
  bool background = false;      // only what all others leave idle is for it
  std::string cache_salt;       // prefixes are shared only inside one salt,
  uint64_t adapter = 0;         // one adapter (0: the base model; the engine sets it),
  uint64_t arithmetic = 0;      // and one arithmetic (0: EngineOptions::arithmetic)
  Lookahead lookahead = Lookahead::kBlind;
  // What it puts over the model's weights, of which `adapter` is the key; null: nothing.
  std::shared_ptr<const Adapter> adapter_weights = nullptr;
  // The form of its answers; null: they are free.
  std::shared_ptr<const TokenConstraint> constraint;
  // An answer that was begun elsewhere goes on here, as after a preemption: its tokens so far are
  // computed behind the prompt, count as its own, and are not emitted again. Only where n is 1.
  std::vector<TokenId> answered;
  int32_t first_choice = 0;  // what choice 0 is to random numbers; emissions count from 0
  uint32_t owner = 0;  // whoever adds it finds his own by this number: emissions bring it back
  // Its answers are the n best of a search, and come at its end; nullopt: they are sampled.
  std::optional<BeamOptions> beams = {};
  // Of a search: what ends an answer besides tokens; null: nothing.
  std::shared_ptr<const AnswerEnd> answer_end = nullptr;

  // Sequences that it is computed as.
  int32_t sequences() const { return beams ? beams->width : sampling.n; }
};

enum class FinishReason : uint8_t {
  kNone,        // still running
  kStop,        // an end id, a stop id, or (decided at the edge) a stop string
  kLength,      // max_tokens or the context is full
  kAbort,       // cancelled
  kFault,       // its own logits were NaN or all -inf; neighbours are untouched
  kRepetition,  // it ends in a loop (SamplingParams::loop)
  kDeadEnd,     // no token can follow in the form that its request asks for; what came is kept
};

// What a step brings for one choice: one token, but with speculation.
using StepTokens = InlineVector<TokenId, 4>;

// The name the OpenAI API gives it: "stop", "length", "abort", "repetition", "error" (faults and
// dead ends).
std::string_view finish_reason_name(FinishReason reason);

// What a search says of an answer.
struct BeamScore {
  double cumulative_logprob = 0;  // of its tokens, an end id among them
  double score = 0;               // the same by its length: answers are ordered by it
};

// What a step brought for one choice of a request. `tokens` are new output tokens; an end id that
// stopped the choice is among them (the edge hides it).
struct Emission {
  RequestId request;
  uint32_t owner = 0;  // Request::owner
  int32_t choice = 0;  // index among the request's n
  StepTokens tokens;
  std::vector<TokenLogprobs> logprobs;  // one per token when the request asked for them
  // Entries for prompt tokens [prompt_first, prompt_first + size), in order over the emissions of
  // choice 0, when asked for. Token 0 has none (nothing conditions it), so prompt_first >= 1.
  int32_t prompt_first = 0;
  std::vector<TokenLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_token;  // the stop_token_ids entry that ended it (none for end ids)
  int32_t cached_tokens = 0;          // of the prompt, not computed but found in the prefix cache
  std::optional<BeamScore> beam_score = {};  // of an answer of a search, which comes whole
  // The request leaves the queue: its first step starts. Once, before all others, with no news
  // beside it; a request that ends in the queue has none.
  bool admitted = false;
};

}  // namespace headrace
