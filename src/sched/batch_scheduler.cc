#include "sched/batch_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/request_limits.h"

namespace headrace {
namespace {

// Null: off. REQUIRES: the rule of eviction has a row in its table
std::unique_ptr<PrefixCache> create_prefix_cache(const SchedulerOptions& options, BlockPool& pool) {
  if (!options.enable_prefix_caching || options.allocation != KvAllocation::kPaged) return nullptr;
  if (options.state_checkpoints == 0) return nullptr;
  const EvictionRule rule = find_eviction_rule(options.prefix_cache_eviction).value();
  auto cache = std::make_unique<PrefixCache>(
      pool, options.groups,
      PrefixCacheOptions{
          .rule = rule, .tiers = options.tiers, .checkpoints = options.state_checkpoints});
  // What is restored before the first plan came now.
  if (options.clock != nullptr) cache->set_now(options.clock->now_seconds());
  return cache;
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::create(SchedulerOptions options) {
  HR_RETURN_IF_ERROR(check_options(options));
  HR_ASSIGN_OR_RETURN(std::unique_ptr<QueuePolicy> policy, create_queue_policy(options));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<DraftSource> drafts, create_draft_source(options.proposals));
  return std::unique_ptr<Scheduler>(
      std::make_unique<BatchScheduler>(std::move(options), std::move(policy), std::move(drafts)));
}

BatchScheduler::BatchScheduler(SchedulerOptions options, std::unique_ptr<QueuePolicy> policy,
                               std::shared_ptr<DraftSource> drafts)
    : options_(std::move(options)),
      policy_(std::move(policy)),
      pool_(options_.block_count),
      cache_(create_prefix_cache(options_, pool_)),
      admission_(options_),
      supply_(options_, pool_, cache_.get(), admission_),
      table_(options_, *policy_, pool_, supply_, admission_),
      pace_(options_),
      displacement_(*policy_, table_, pace_),
      promotion_(options_, *policy_, table_, displacement_),
      admitter_(options_, *policy_, pool_, supply_, admission_, table_, pace_, displacement_),
      background_(options_, table_, pace_),
      securer_(options_, pool_, supply_, table_),
      proposer_(options_, pace_, std::move(drafts)),
      chooser_(options_, *policy_, table_, pace_, background_, proposer_, admitter_),
      writer_(options_, pool_, supply_, table_),
      reader_(options_, *policy_, pool_, supply_, admission_, table_, proposer_),
      swapper_(options_, *policy_, pool_, cache_.get(), supply_, table_) {}

// --- requests

Status BatchScheduler::check(const Request& request) const {
  return check_request(options_, request);
}

Status BatchScheduler::add(Request request) {
  HR_RETURN_IF_ERROR(check(request));
  if (request.beams) prepare_search(request, options_.end_ids.size());
  if (options_.cohorts.count > 1) request.lookahead = Lookahead::kAfterResult;
  return table_.add(std::move(request), next_step_, pace_.now());
}

bool BatchScheduler::cancel(RequestId request) {
  const auto found = table_.requests().find(request);
  if (found == table_.requests().end()) return false;
  const std::vector<Sequence*> choices = found->second.choices;
  for (Sequence* sequence : choices) {
    if (sequence != nullptr) table_.end_choice(*sequence);
  }
  table_.sweep_retired();
  return true;
}

bool BatchScheduler::cancel(RequestId request, int32_t choice) {
  const auto found = table_.requests().find(request);
  if (found == table_.requests().end()) return false;
  const std::vector<Sequence*>& choices = found->second.choices;
  if (found->second.search != nullptr) return false;  // its answers come whole, at its end
  if (choice < 0 || static_cast<size_t>(choice) >= choices.size()) return false;
  Sequence* sequence = choices[static_cast<size_t>(choice)];
  if (sequence == nullptr) return false;
  table_.end_choice(*sequence);
  table_.sweep_retired();
  return true;
}

// --- a plan

StepPlan BatchScheduler::plan() {
  CHECK_MSG(in_flight_.size() < static_cast<size_t>(options_.steps_in_flight_max),
            "plan() with steps_in_flight_max plans not applied");
  if (waits_for_proposals()) return {};
  if (cache_ != nullptr) {
    cache_->begin_plan(Ticket(next_step_));
    cache_->set_now(pace_.now());
  }
  background_.note_live_work();
  table_.release_slots();
  promotion_.promote_starving(next_step_);
  renew_reservations();
  // The policy shall see the slots that the background gives way with before it chooses a step.
  if (table_.running().has_background()) admitter_.make_room(next_step_);

  StepDraft draft = begin_draft();
  draft_step(draft);
  while (draft.plan.empty()) {
    const std::optional<StepTerms> looser = looser_terms(draft);
    if (!looser) break;
    draft.terms = *looser;
    draft_step(draft);
  }
  if (!draft.plan.work.empty()) {
    swapper_.move_ahead(draft.plan.step);
    supply_.collect_moves(draft.plan);
  }
  return submit(draft);
}

// Whether half of those that decode, or more, get proposals and are in flight. A step beside theirs
// would have the others alone: both would come half full from then on, each as long as a full one.
// Of stages each has a step of its own.
bool BatchScheduler::waits_for_proposals() const {
  if (in_flight_.empty() || options_.cohorts.count > 1) return false;
  int64_t decoding = 0, awaited = 0;
  for (const Sequence* sequence : table_.running().all()) {
    if (!sequence->is<Decoding>()) continue;
    ++decoding;
    if (sequence->proposals.awaited && !sequence->can_decode()) ++awaited;
  }
  return awaited > 0 && 2 * awaited >= decoding;
}

StepDraft BatchScheduler::begin_draft() {
  StepDraft draft;
  draft.plan.step = next_step_;
  const auto running = static_cast<size_t>(table_.running().size());
  draft.plan.work.reserve(running);
  draft.candidates = std::move(spare_candidates_);
  draft.sequences = std::move(spare_sequences_);
  draft.sequences.reserve(running);
  draft.terms.shape = policy_->shape(admitter_.view(next_step_));
  return draft;
}

// A sequence that has outgrown its reservation gets the next one, or makes room for others.
void BatchScheduler::renew_reservations() {
  if (!table_.has_reservations()) return;
  for (int64_t i = table_.running().size(); i-- > 0;) {
    const std::span<Sequence* const> running = table_.running().all();
    Sequence& sequence = *running[static_cast<size_t>(i)];
    const bool outgrown = sequence.reserved > 0 && sequence.is<Decoding>() &&
                          sequence.known_length() >= sequence.reserved;
    if (!outgrown || sequence.reserved >= sequence.length_max()) continue;
    sequence.reserved = std::min(policy_->reserved_length(sequence), sequence.length_max());
    if (i > 0 && admission_.pages_promised(running) > pool_.free_count()) table_.yield(sequence);
  }
}

// The phases of a step under the draft's terms.
void BatchScheduler::draft_step(StepDraft& draft) {
  const bool joins = draft.terms.shape != StepShape::kDecode;
  draft.sequences.clear();
  draft.joined = 0;
  securer_.keep_for_oldest();
  if (joins) {
    const std::optional<Admitter::Joining> next = admitter_.make_room(draft.plan.step);
    if (next && draft.terms.keeps_pages) supply_.keep_for(next->rank, next->pages);
  }
  chooser_.choose(draft);
  securer_.secure(draft);
  writer_.write(draft);
  if (joins) admit_waiting(draft);
  supply_.collect_moves(draft.plan);
}

// The draft brought no work: the next thing that held it back is let go. nullopt: there is no work
// now.
std::optional<StepTerms> BatchScheduler::looser_terms(const StepDraft& draft) const {
  StepTerms terms = draft.terms;
  if (terms.shape != StepShape::kMixed) {
    // The other kind of step, and then whatever there is.
    const bool decodes = terms.shape == StepShape::kDecode;
    const StepShape other = decodes ? StepShape::kPrefill : StepShape::kDecode;
    terms.shape = terms.other_shape_failed ? StepShape::kMixed : other;
    terms.other_shape_failed = true;
    return terms;
  }
  if (terms.background_pauses && draft.background_paused) {
    terms.background_pauses = false;
    return terms;
  }
  // Pages were kept for a sequence that was refused after all, and nothing is in flight: those that
  // the pages were kept from go on.
  if (terms.keeps_pages && supply_.keeps_pages() && in_flight_.empty()) {
    terms.background_pauses = terms.keeps_pages = false;
    return terms;
  }
  return std::nullopt;
}

StepPlan BatchScheduler::submit(StepDraft& draft) {
  spare_candidates_ = std::move(draft.candidates);
  spare_candidates_.clear();
  if (draft.plan.empty()) {
    CHECK(draft.plan.admitted.empty() && draft.plan.copies.empty());
    return std::move(draft.plan);
  }
  draft.plan.released = table_.take_released_slots();
  background_.note_room(draft);
  in_flight_.push_back({next_step_++, pace_.now(), draft.load, std::move(draft.sequences)});
  return std::move(draft.plan);
}

// Waiting sequences join while slots, pages and budget last; what the prefix cache holds of a
// prompt is not computed. Nothing joins past a sequence that was named and cannot join.
void BatchScheduler::admit_waiting(StepDraft& draft) {
  while (Sequence* head = name_next(draft)) {
    if (head->last_step > pool_.applied()) return;  // preempted; its last token is in flight
    if (admitter_.held_back(*head) || !admitter_.make_slots(*head)) return;
    const PrefixMatch hit = supply_.find_prefix(*head, table_.running().all());
    const int32_t rest = head->known_length() - hit.tokens;
    const int32_t budget = pace_.chunk(draft.budget, hit.tokens, rest);
    if (Sequence* victim = displacement_.victim_for(*head); budget == 0 && victim != nullptr) {
      table_.yield(*victim);  // so that the next step has budget
      return;
    }
    if (budget > 0 && chooser_.chunk(draft.budget, *head, hit.tokens, rest) == 0) return;
    // A prompt of the background is cut to the time that is left for it, under any policy.
    const BatchView batch{.requests_joined = draft.joined,
                          .prompt_left = head->rank.background ? std::min(rest, budget) : rest,
                          .token_budget_left = budget};
    if (!admitter_.may_join(*head, batch) || !admitter_.leaves_headroom(*head, hit)) return;
    if (!admitter_.make_pages(*head, hit, draft.plan.step)) {
      if (policy_->rules().holds_after_refusal)
        admission_.allocation_failed(table_.running().size());
      return;
    }
    admit(draft, *head, hit);
  }
}

// Names the sequence that joins next; null: none now. Where no live one waits the rest of the step
// is bounded to what background work may take, and goes to the first of the background.
Sequence* BatchScheduler::name_next(StepDraft& draft) {
  const WaitingLine& line = table_.line();
  if (!line.live().empty()) return admitter_.name_next(draft.plan.step);
  if (line.background().empty()) return nullptr;
  Sequence* first = *line.background().begin();
  background_.bound_rest(draft.budget, *first);
  const int32_t found = supply_.find_prefix(*first, table_.running().all()).tokens;
  return pace_.chunk(draft.budget, found, first->known_length() - found) > 0 ? first : nullptr;
}

void BatchScheduler::admit(StepDraft& draft, Sequence& head, const PrefixMatch& hit) {
  ++draft.joined;
  table_.start(head);
  displacement_.charge(head, hit.tokens);
  const Ticket usable_after = supply_.adopt(head, hit);
  supply_.unpin(head);
  writer_.write_admission(draft, head, head.known_tokens());
  if (usable_after == Ticket(draft.plan.step)) {
    head.last_step = usable_after;  // the load refers to its pages
  } else {
    write_first_chunk(draft, head);
  }
  if (head.request->beams && !head.output.empty()) resume_beams(draft, head);
}

void BatchScheduler::write_first_chunk(StepDraft& draft, Sequence& head) {
  const int32_t rest = head.known_length() - head.extent.most;
  const int32_t chunk = chooser_.chunk(draft.budget, head, head.extent.most, rest);
  DraftEntry candidate{.sequence = &head,
                       .count = supply_.longest_fit(head, chunk, supply_.free_pages_for(head))};
  if (candidate.count == 0) return;  // a static batch starts whole; its prompt waits for budget
  chooser_.take(draft.budget, head, head.extent.most, candidate.count);
  supply_.grow(head, candidate.count, Ticket(draft.plan.step), candidate.new_blocks,
               draft.plan.copies);
  writer_.write_work(draft, candidate);
}

// The other beams of a search that has begun. What is found of each takes no page that is not free.
void BatchScheduler::resume_beams(StepDraft& draft, Sequence& first) {
  const std::vector<Sequence*> beams = first.followers;
  for (Sequence* beam : beams) {
    const std::span<Sequence* const> running = table_.running().all();
    PrefixMatch hit = supply_.find_prefix(*beam, running);
    if (supply_.pages_to_adopt(hit) > pool_.free_count()) hit = {};
    const Ticket usable_after = table_.resume_beam(first, *beam, hit, draft.plan.step);
    if (usable_after == Ticket(draft.plan.step)) beam->last_step = usable_after;
    writer_.write_admission(draft, *beam, beam->known_tokens());
  }
}

// --- what a step brought

std::vector<Emission> BatchScheduler::apply(const StepPlan& plan, const StepResult& result) {
  if (plan.empty()) return {};
  CHECK_MSG(!in_flight_.empty() && in_flight_.front().step == plan.step,
            "plans are applied in order");
  InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  const StepLoad load = step.load - StepLoad::left_out(plan, result);
  const StepPace::Measured measured =
      pace_.note_applied(load, step.planned_seconds, result.drafting.seconds);
  proposer_.note_step(result, measured.seconds);
  displacement_.earn(measured.seconds);
  swapper_.note_step(measured.seconds);
  background_.note_applied(plan, step.sequences, measured);
  if (cache_ != nullptr && pace_.knows()) {
    cache_->set_seconds_per_token(pace_.cost().seconds_per_prompt_token());
  }
  std::vector<Emission> emissions =
      reader_.read(plan, step.sequences, result,
                   {.now_seconds = pace_.applied_seconds(), .step_seconds = measured.seconds});
  spare_sequences_ = std::move(step.sequences);
  spare_sequences_.clear();
  pool_.advance(Ticket(plan.step));
  table_.sweep_retired();
  pace_.note_work_left(has_work());
  return emissions;
}

SchedulerStats BatchScheduler::stats() const {
  SchedulerStats stats;
  stats.running = static_cast<int32_t>(table_.running().size());
  stats.waiting = static_cast<int32_t>(table_.line().live().size());
  stats.background_waiting = static_cast<int32_t>(table_.line().background().size());
  stats.background_running = stats.running - static_cast<int32_t>(table_.running().live().size());
  stats.preemptions = table_.preemptions();
  stats.yields = table_.yields();
  stats.promotions = promotion_.promotions();
  stats.idle_row_steps = table_.slots().idle_row_steps();
  stats.displacement_seconds = displacement_.seconds_left();
  stats.steps = next_step_ - 1;
  stats.step_cost = pace_.cost();
  stats.step_cost_error = pace_.error();
  stats.blocks_total = pool_.total();
  stats.blocks_used = pool_.total() - pool_.free_count();
  stats.blocks_cached = pool_.idle_count();
  background_.count(stats);
  proposer_.count(stats);
  reader_.count(stats);
  supply_.count(stats);
  return stats;
}

}  // namespace headrace
