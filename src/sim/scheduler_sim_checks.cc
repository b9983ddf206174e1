// SchedulerSimulation: what must hold of plans, steps and emissions.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "sim/scheduler_sim.h"

namespace headrace {
namespace {

using Patience = SimulatedPolicy::Patience;

constexpr SimulatedPolicy kPolicies[] = {
    {"fcfs", Patience::kInLine},
    {"static", Patience::kInLine},
    {"one-at-a-time", Patience::kInLine},
    {"openppl", Patience::kInLine},
    {"waiting-ratio", Patience::kPhases},
    {"phase-pure", Patience::kPhases},
    {"prefill-first", Patience::kPhases},
    {"priority", Patience::kPromoted},
    {"lpm", Patience::kPromoted},
    {"deadline", Patience::kTurns},
    {"sjf-predicted", Patience::kPromoted},
    {"sjf-declared", Patience::kPromoted},
    {"ljf-declared", Patience::kPromoted},
    {"srpt-declared", Patience::kPromoted},
    {"packed-predicted", Patience::kReserved},
    {"mlfq", Patience::kTurns},
    {"fair", Patience::kShares},
};

// The last token is sampled and never computed.
int32_t longest(const Request& request) {
  return static_cast<int32_t>(request.prompt.size()) + std::max(0, request.sampling.max_tokens - 1);
}

// Of the proposals that a work had.
int32_t accepted_proposals(const Work& work, const StepResult& result) {
  if (work.proposal_count() == 0) return 0;
  const auto row = std::find_if(result.rows.begin(), result.rows.end(),
                                [&](const auto& each) { return each.sequence == work.sequence; });
  return row == result.rows.end() ? 0 : static_cast<int32_t>(row->accepted.size()) - 1;
}

bool samples_for(const StepPlan& plan, SequenceId sequence) {
  const auto is_it = [&](const auto& each) { return each.sequence == sequence; };
  return std::any_of(plan.work.begin(), plan.work.end(), [&](const Work& work) {
    return (work.samples && is_it(work)) ||
           std::any_of(work.also_sample.begin(), work.also_sample.end(), is_it);
  });
}

bool same(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.token == b.token && a.logprob == b.logprob && a.top == b.top;
}

}  // namespace

std::span<const SimulatedPolicy> simulated_policies() { return kPolicies; }

void SchedulerSimulation::check_invariants() {
  if (failure_) return;
  // Not from rng_: a seed gives the same run however often it is checked.
  const uint64_t moment = mix64(seed_ ^ mix64(static_cast<uint64_t>(steps_) * 2 + applied_));
  if (moment % static_cast<uint64_t>(settings_.check_every) != 0 && scheduler_->has_work()) return;
  const Status status = scheduler_->check_invariants();
  if (!status.ok()) fail(status.message());
}

void SchedulerSimulation::check_plan(const StepPlan& plan) {
  for (const Admission& admission : plan.admitted) {
    int32_t computed = admitted_[admission.sequence].computed;
    const auto known = static_cast<int32_t>(admission.tokens.size());
    // A beam begins with what another has computed, and goes on with what it was before.
    const bool begun = known > static_cast<int32_t>(admission.request->prompt.size());
    if (admission.request->beams && begun) computed = std::max(computed, known - 1);
    admitted_[admission.sequence] = {
        admission.request->id,       admission.choice, known,
        longest(*admission.request), computed,         admission.request->beams.has_value()};
    with_slot_.insert(admission.sequence);
    if (!admission.blocks.empty()) ++tally_.forks;
  }
  tally_.copies += static_cast<int64_t>(plan.copies.size());
  int32_t tokens = 0;
  bool prompts_begun = false;
  std::set<SequenceId> seen;
  for (const Work& work : plan.work) {
    tokens += work.count;
    if (!seen.insert(work.sequence).second) fail("two works of one sequence");
    check_work(work);
    const bool decodes = work.first >= admitted_.at(work.sequence).prompt_end;
    if (admitted_.at(work.sequence).beam) continue;  // which looks like a prompt where it has moved
    if (decodes && prompts_begun) fail("a decode after a prompt chunk");
    prompts_begun = prompts_begun || !decodes;
  }
  if (tokens != plan.token_count) fail("token_count is not the sum of the work");
  if (tokens > options_.max_num_batched_tokens) fail("a plan over the token budget");
  for (const ReleasedSlot& released : plan.released) {
    const bool joins_again = std::any_of(
        plan.admitted.begin(), plan.admitted.end(),
        [&](const Admission& admission) { return admission.sequence == released.sequence; });
    if (!joins_again) with_slot_.erase(released.sequence);
    for (const InFlight& step : in_flight_) {
      for (const Work& work : step.plan.work) {
        if (work.slot == released.slot) fail("a slot is released while a step in flight uses it");
      }
    }
  }
}

void SchedulerSimulation::check_work(const Work& work) {
  const Admitted& admitted = admitted_.at(work.sequence);
  if (work.count <= 0) fail("work without tokens");
  if (work.ended && !has_ended(admitted)) fail("the row of an ended choice is of one that goes on");
  const int32_t longest = work.ended ? options_.max_model_len : admitted.longest;
  if (work.first + work.count > longest) fail("a token after max_tokens is computed");
  const int32_t proposed = work.proposal_count();
  if (work.first >= admitted.prompt_end && (work.count != 1 + proposed || !work.samples)) {
    fail("a decode is one token that samples, and proposals behind it");
  }
  if (work.first < admitted.prompt_end && proposed > 0) fail("a prompt has proposals");
  if (!work.proposed.valid()) fail("the tree of proposals is none");
  const bool blind = std::any_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& step) {
    return samples_for(step.plan, work.sequence);
  });
  if (blind && !has_ended(admitted) &&
      open_.at(admitted.request).request.lookahead == Lookahead::kAfterResult) {
    fail("a sequence that needs its last result is planned before it");
  }
  if (work.samples && !work.ended && has_ended(admitted)) fail("a choice that has ended samples");
  for (const SampleTarget& target : work.also_sample) {
    if (has_ended(admitted_.at(target.sequence))) fail("a choice that has ended samples");
  }
}

bool SchedulerSimulation::has_ended(const Admitted& admitted) const {
  const auto found = open_.find(admitted.request);
  return found == open_.end() || found->second.choices[static_cast<size_t>(admitted.choice)].ended;
}

// A prefix is found only when the steps that wrote it were applied. (A fork shares what its own
// plan computes.)
void SchedulerSimulation::check_prefixes(const StepPlan& plan) {
  std::set<SequenceId> forks;
  std::set<CheckpointId> saved;
  for (const Work& work : plan.work) {
    for (const SampleTarget& target : work.also_sample) forks.insert(target.sequence);
    for (const StateSave& save : work.saves) {
      if (!saved.insert(save.checkpoint).second) {
        fail(fmt::format("two states are saved in checkpoint {}", save.checkpoint.value));
      }
    }
  }
  for (const Admission& admission : plan.admitted) {
    if (forks.contains(admission.sequence)) continue;
    // (A prefix may have no page, where windows are as narrow as a token.)
    const bool has_prefix = !admission.blocks.empty();
    if (options_.state_checkpoints && has_prefix && !admission.checkpoint) {
      fail(fmt::format("sequence {} begins without a state", admission.sequence.value));
    }
    for (const GroupBlocks& group : admission.blocks) {
      for (BlockId block : group.blocks) {
        if (device_->last_write(block).value > applied_) {
          fail(fmt::format("page {} is found before step {}, which wrote it, was applied",
                           block.value, device_->last_write(block).value));
        }
      }
    }
  }
}

void SchedulerSimulation::check_pages(const StepPlan& plan) {
  for (const PageMove& load : plan.loads) {
    if (device_->last_touch(BlockId(load.to.page)).value > applied_) {
      fail(fmt::format("page {} is loaded while a step may touch it", load.to.page));
    }
  }
  for (const Work& work : plan.work) {
    for (const GroupBlocks& group : work.new_blocks) {
      for (BlockId block : group.blocks) {
        if (device_->last_touch(block).value > applied_) {
          fail(fmt::format("page {} is given away while step {} may touch it", block.value,
                           device_->last_touch(block).value));
        }
      }
    }
  }
}

// Why the oldest live request waits no longer than that, in steps that were planned. In what
// follows a fence is a step in flight: of `in_flight` steps at most one is planned anew while a
// fence from an earlier plan stands, so that it is waited for in in_flight - 1 plans.
//
// The first in line (`next`). Nobody stands before it, and nobody behind it takes its pages while
// it waits for them. One after the other it may wait for fences
//   - of its own steps: its last tokens, or, preempted, the token that was in flight then
//   - of slots, which all that had to give way gave up in one plan
//   - of pages, given up in one plan too
//   - of its pages again, where another choice of it joins or goes on; of a search, each beam
// and a plan for each of: a load of its pages, joining without budget, a background that had it.
// Who joins in place of others finds their decodes in a step that is full: one gives way a plan.
//
// kPromoted: so long it may wait for those before it, then it is the first. (Among the promoted the
// oldest goes first, and it has waited longest of its own choices.)
//
// kPhases: what it waits for is only looked at in steps of its kind, and those of the other kind
// are so many in a row at most.
//
// kTurns: one is promoted at a time, and stays so to its end. Before it are the one that is, and
// those that have waited for longer: whoever gets work meanwhile stands behind it. Each of them has
// so many tokens to compute at most, at least one each time that it need not wait for pages.
//
// kReserved: the promoted takes nothing from those that run, and nobody else joins: it waits for
// their ends. The first of them computes a token each time that it need not wait for pages.
//
// kShares promises service, not steps: service_without_work_max() bounds what others may be served
// meanwhile. Steps that serve nobody compute again what preempted sequences had, each once.
int64_t SchedulerSimulation::steps_without_work_max() const {
  const auto policy = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                   [&](const auto& row) { return row.name == options_.policy; });
  const int64_t in_flight = options_.steps_in_flight_max, slots = options_.max_num_seqs;
  int64_t beams = 0;
  for (const auto& [id, clients] : open_) {
    if (clients.request.beams) beams = std::max<int64_t>(beams, clients.request.beams->width);
  }
  const int64_t next = (4 + beams) * (in_flight - 1) + 3;
  const int64_t whole = in_flight * tokens_to_its_end(options_.max_model_len);
  switch (policy->patience) {
    case Patience::kInLine:
      return next;
    case Patience::kPromoted:
      return options_.promote_after_steps + slots + next;
    case Patience::kPhases: {
      const int64_t phase = std::max<int64_t>({slots, options_.waiting.max_tokens, 4}) + 1;
      return next + 4 * phase;
    }
    case Patience::kTurns: {
      int64_t before = whole + slots + next;
      for (const auto& [id, clients] : open_) {
        if (id == oldest_ || clients.request.background) continue;
        for (const Client& client : clients.choices) {
          if (client.ended || client.last_work > oldest_last_work_) continue;
          before += in_flight * tokens_to_its_end(longest(clients.request)) + slots + next;
        }
      }
      return options_.promote_after_steps + before + slots + next;
    }
    case Patience::kReserved:
      return options_.promote_after_steps + slots * whole + next;
    case Patience::kShares:
      return slots * whole + next;
  }
  return 0;
}

// Under kShares, in units of note_service(). Another tenant is served more than the oldest one's by
// the bound on their gap at most, and by as much as the oldest one's own tenant is served
// meanwhile: those of its requests that run, to their ends. Then it is the first.
double SchedulerSimulation::service_without_work_max() const {
  const double own = 2.0 * options_.max_num_seqs * options_.max_model_len;
  return service_gap_max() + 2 * own;
}

// Sheng et al., OSDI 2024, theorem 4.4: 2 max(w_p x longest prompt, w_q x tokens of the batch). A
// prompt is charged as it is computed, not when it joins: what runs and is not yet charged is of
// the batch's tokens too, and w_q is the greater weight.
double SchedulerSimulation::service_gap_max() const {
  return 2 * 2.0 * options_.max_num_seqs * options_.max_model_len;
}

// Steps that compute what it has at once, prompt and output so far, and then token by token.
int64_t SchedulerSimulation::tokens_to_its_end(int32_t length) const {
  return length + (length + options_.max_num_batched_tokens - 1) / options_.max_num_batched_tokens;
}

void SchedulerSimulation::note_work(const StepPlan& plan) {
  const auto note = [&](SequenceId sequence) {
    const Admitted& admitted = admitted_.at(sequence);
    const auto found = open_.find(admitted.request);
    if (found == open_.end()) return;
    found->second.choices[static_cast<size_t>(admitted.choice)].last_work = steps_;
  };
  for (const Work& work : plan.work) {
    note(work.sequence);
    for (const SampleTarget& target : work.also_sample) note(target.sequence);
  }
}

// Under a policy whose preemptions have a price nobody is promoted while it is being paid, and
// those steps do not count. Each of those that wait is owed for once, when it joins again.
bool SchedulerSimulation::pays_for_displacement() {
  const double owed = -scheduler_->stats().displacement_seconds;
  // A token is charged for with a step of its own at most (where all steps have one no fit can tell
  // them apart), and a fit may be wrong by as much.
  const double most = 2 * (kSecondsPerStep + kSecondsPerToken) * options_.max_model_len *
                      habits_.outstanding_max * habits_.n_max;
  if (owed > most) fail(fmt::format("{} s are owed for displacements, at most {}", owed, most));
  return owed > 0;
}

void SchedulerSimulation::check_progress(const StepPlan& plan) {
  note_work(plan);
  // Of the live ones: those in the background may starve, and delay nobody.
  const auto live = std::find_if(open_.begin(), open_.end(),
                                 [](const auto& each) { return !each.second.request.background; });
  if (live == open_.end()) return;
  const RequestId oldest = live->first;
  const bool worked = std::any_of(plan.work.begin(), plan.work.end(), [&](const Work& work) {
    return admitted_.at(work.sequence).request == oldest;
  });
  if (oldest != oldest_ || worked) {
    oldest_ = oldest;
    oldest_waits_ = 0;
    oldest_last_work_ = steps_;
    served_at_last_work_ = served_;
    patience_ = -1;
  }
  if (worked || pays_for_displacement()) return;
  if (options_.policy == "fair") check_service_of_others(oldest);
  if (patience_ < 0) patience_ = steps_without_work_max();
  if (++oldest_waits_ > patience_) {
    fail(fmt::format("request {}, the oldest, had no work for {} steps", oldest.value,
                     oldest_waits_));
  }
  tally_.wait_share_max = std::max(
      tally_.wait_share_max, static_cast<double>(oldest_waits_) / static_cast<double>(patience_));
}

// A step that served somebody is counted by its service, one that served nobody by itself.
void SchedulerSimulation::check_service_of_others(RequestId oldest) {
  if (served_ != served_last_checked_) {
    served_last_checked_ = served_;
    oldest_waits_ = 0;
  }
  const double served = served_ - served_at_last_work_, bound = service_without_work_max();
  if (served > bound) {
    fail(fmt::format("request {}, the oldest, had no work while others were served {}, at most {}",
                     oldest.value, served, bound));
  }
  tally_.service_share_max = std::max(tally_.service_share_max, served / bound);
}

// All of its choices: none has a slot.
bool SchedulerSimulation::is_waiting(const Clients& clients) const {
  if (clients.request.background) return false;
  return std::none_of(with_slot_.begin(), with_slot_.end(), [&](SequenceId sequence) {
    return admitted_.at(sequence).request == clients.request.id;
  });
}

// What the steps that were applied brought each tenant: 1 for a prompt token, 2 for an output
// token. Tokens that were computed before are nobody's service, those of the background neither,
// and proposals that were rejected.
void SchedulerSimulation::note_service(const StepPlan& plan, const StepResult& result) {
  for (const Work& work : plan.work) {
    Admitted& admitted = admitted_.at(work.sequence);
    const int32_t kept = accepted_proposals(work, result);
    const int32_t end = work.first + work.count - work.proposal_count() + kept;
    const auto found = open_.find(admitted.request);
    const int32_t before = std::max(admitted.computed, work.first);
    admitted.computed = std::max(admitted.computed, end);
    if (found == open_.end() || found->second.request.background) continue;
    const Request& request = found->second.request;
    const auto prompt = static_cast<int32_t>(request.prompt.size());
    const double prompts = std::max(0, std::min(prompt, end) - before);
    const auto outputs =
        static_cast<double>(work.also_sample.size()) + (work.samples ? 1 + kept : 0);
    const double service = prompts + 2 * outputs;
    served_ += service;
    service_gap_ += request.tenant == "flood" ? service : -service;
    for (const SampleTarget& target : work.also_sample) {
      admitted_.at(target.sequence).computed = end;
    }
  }
}

// While two tenants both have something waiting, their service stays within service_gap_max().
void SchedulerSimulation::check_fairness(const StepPlan&) {
  if (options_.policy != "fair") return;
  const auto waits = [&](const char* tenant) {
    return std::any_of(open_.begin(), open_.end(), [&](const auto& each) {
      return each.second.request.tenant == tenant && is_waiting(each.second);
    });
  };
  if (!waits("flood") || !waits("calm")) {
    gap_range_.reset();
    return;
  }
  ++tally_.steps_backlogged;
  if (!gap_range_) gap_range_ = {service_gap_, service_gap_};
  gap_range_->first = std::min(gap_range_->first, service_gap_);
  gap_range_->second = std::max(gap_range_->second, service_gap_);
  const double bound = service_gap_max();
  const double gap = gap_range_->second - gap_range_->first;
  tally_.gap_share_max = std::max(tally_.gap_share_max, gap / bound);
  if (gap > bound) {
    fail(fmt::format("two tenants that wait were served {} apart, at most {} is allowed", gap,
                     bound));
  }
}

void SchedulerSimulation::check_emission(const Emission& emission) {
  const auto found = open_.find(emission.request);
  if (found == open_.end()) return fail("an emission for a request that has ended");
  Clients& clients = found->second;
  Client& client = clients.choices.at(static_cast<size_t>(emission.choice));
  if (client.ended) return fail("an emission for a choice that has ended");
  check_prompt_logprobs(clients, client, emission);
  check_cached_tokens(clients.request, emission);
  if (emission.finish == FinishReason::kFault) {
    if (!client.may_fault) fail("a fault that nobody injected");
    if (!emission.tokens.empty()) fail("a token of a NaN row");
    return end_choice(emission.request, emission.choice);
  }
  check_tokens(clients, client, emission);
  const bool whole_prompt =
      client.scored.length() == static_cast<int32_t>(clients.request.prompt.size());
  if (emission.finish == FinishReason::kNone) return;
  if (emission.choice == 0 && clients.request.sampling.prompt_logprobs >= 0 && !whole_prompt) {
    fail("prompt log-probabilities are missing");
  }
  end_choice(emission.request, emission.choice);
}

void SchedulerSimulation::check_tokens(const Clients& clients, Client& client,
                                       const Emission& emission) {
  const Request& request = clients.request;
  if (request.beams) {
    const std::string wrong = wrong_in_answer(clients.found, emission);
    tally_.searches += emission.finish != FinishReason::kNone && emission.choice == 0 ? 1 : 0;
    return wrong.empty() ? void() : fail(wrong);
  }
  const bool wants = request.sampling.logprobs >= 0;
  if (emission.logprobs.size() != (wants ? emission.tokens.size() : 0)) {
    return fail("one entry of log-probabilities per token, when asked for");
  }
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_token;
  for (size_t i = 0; i < emission.tokens.size(); ++i) {
    const TokenId expected =
        client.heard.next_token(model_, request.sampling.seed.value_or(0), emission.choice);
    if (emission.tokens[i] != expected) {
      return fail(fmt::format("request {} choice {}: token {} is {}, the oracle says {}",
                              request.id.value, emission.choice, client.output_count,
                              emission.tokens[i], expected));
    }
    if (wants && !same(emission.logprobs[i],
                       client.heard.logprobs(model_, expected, request.sampling.logprobs))) {
      return fail("wrong log-probabilities");
    }
    if (finish != FinishReason::kNone) return fail("a token after the end");
    client.tokens.push_back(expected);
    client.heard.append(expected);
    ++client.output_count;
    ++tally_.tokens;
    finish = expected_finish(request, client, stop_token);
  }
  if (request.sampling.max_tokens == 0 && emission.finish != FinishReason::kNone) {
    finish = FinishReason::kLength;
  }
  if (emission.finish != finish || emission.stop_token != stop_token) {
    fail(fmt::format("request {} choice {} finishes with {}, expected {}", request.id.value,
                     emission.choice, finish_reason_name(emission.finish),
                     finish_reason_name(finish)));
  }
}

FinishReason SchedulerSimulation::expected_finish(const Request& request, const Client& client,
                                                  std::optional<TokenId>& stop_token) const {
  const SamplingParams& sampling = request.sampling;
  const TokenId last = client.tokens.back();
  const auto& stops = sampling.stop_token_ids;
  if (client.output_count > sampling.min_tokens) {
    if (last == model_.end_id && !sampling.ignore_eos) return FinishReason::kStop;
    if (std::find(stops.begin(), stops.end(), last) != stops.end()) {
      stop_token = last;
      return FinishReason::kStop;
    }
  }
  return client.output_count == sampling.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

void SchedulerSimulation::check_prompt_logprobs(const Clients& clients, Client& client,
                                                const Emission& emission) {
  if (emission.prompt_logprobs.empty()) return;
  const Request& request = clients.request;
  if (emission.choice != 0 || request.sampling.prompt_logprobs < 0) {
    return fail("prompt log-probabilities that nobody asked for");
  }
  if (emission.prompt_first != client.scored.length()) {
    return fail(fmt::format("prompt log-probabilities from {}, expected from {}",
                            emission.prompt_first, client.scored.length()));
  }
  for (const TokenLogprobs& entry : emission.prompt_logprobs) {
    const auto at = static_cast<size_t>(client.scored.length());
    if (at >= request.prompt.size()) return fail("log-probabilities beyond the prompt");
    const TokenId token = request.prompt[at];
    if (!same(entry, client.scored.logprobs(model_, token, request.sampling.prompt_logprobs))) {
      return fail("wrong prompt log-probabilities");
    }
    client.scored.append(token);
  }
}

// That they were computed before, and for this salt, the oracle's tokens say.
void SchedulerSimulation::check_cached_tokens(const Request& request, const Emission& emission) {
  const bool may_read = options_.enable_prefix_caching && request.sampling.prompt_logprobs < 0;
  // The last known token is always computed; behind tokens that came along it is none of the
  // prompt.
  const int32_t computed = request.answered.empty() ? 1 : 0;
  const auto most = may_read ? static_cast<int32_t>(request.prompt.size()) - computed : 0;
  if (emission.cached_tokens < 0 || emission.cached_tokens > most) {
    fail(fmt::format("{} cached tokens of a prompt of {}", emission.cached_tokens,
                     request.prompt.size()));
  }
}

void SchedulerSimulation::check_end() {
  const SchedulerStats stats = scheduler_->stats();
  tally_.preemptions = static_cast<int64_t>(stats.preemptions);
  tally_.yields = static_cast<int64_t>(stats.yields);
  tally_.promotions = static_cast<int64_t>(stats.promotions);
  tally_.dropped_tokens = static_cast<int64_t>(stats.dropped_tokens);
  tally_.cached_tokens = static_cast<int64_t>(stats.prefix_cache_hits);
  tally_.evictions = static_cast<int64_t>(stats.prefix_cache_evictions);
  tally_.pages_stored = static_cast<int64_t>(stats.pages_moved.stored);
  tally_.states_saved = static_cast<int64_t>(stats.states.saved);
  tally_.states_restored = static_cast<int64_t>(stats.states.restored);
  tally_.states_evicted = static_cast<int64_t>(stats.states.evicted);
  tally_.pages_loaded = static_cast<int64_t>(stats.pages_moved.loaded);
  tally_.resumed_tokens = static_cast<int64_t>(stats.resumed_tokens);
  if (!open_.empty()) fail("a request got no end");
  if (stats.blocks_used != 0) fail(fmt::format("{} pages are lost", stats.blocks_used));
  if (stats.running != 0 || stats.waiting != 0) fail("something is left in a list");
}

}  // namespace headrace
