#include "sched/scheduler_sim.h"

#include <algorithm>

#include <fmt/format.h>

namespace headrace {
namespace {

// With three steps in flight a page comes back three steps after it was given up, and the oldest
// may need pages of several victims.
constexpr int32_t kStepsWithoutWorkMax = 8;
constexpr int32_t kPromoteAfterSteps = 60;

// The bound that each policy promises: how long the oldest request may go without work.
//   in line     nobody goes before it
//   promoted    after promote_after_steps nobody does
//   phases      the prompts of a full batch are computed first (waiting-ratio), or four steps of
//   them queues      all that are in the first queue before it use their quantum (mlfq) shares its
//   tenant's turn comes: all others' requests may be served before (fair)
enum class Patience { kInLine, kPromoted, kPhases, kQueues, kShares };
struct SimulatedPolicy {
  const char* name;
  Patience patience;
};
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
    {"deadline", Patience::kQueues},
    {"sjf-predicted", Patience::kPromoted},
    {"sjf-declared", Patience::kPromoted},
    {"ljf-declared", Patience::kPromoted},
    {"srpt-declared", Patience::kQueues},
    {"packed-predicted", Patience::kQueues},
    {"mlfq", Patience::kQueues},
    {"fair", Patience::kShares},
};
constexpr int64_t kDrainStepsMax = 200000;
constexpr size_t kHeardMax = 12;

template <class T, size_t N>
T pick(Rng& rng, const T (&values)[N]) {
  return values[rng.below(N)];
}

// The last token is sampled and never computed.
int32_t longest(const Request& request) {
  return static_cast<int32_t>(request.prompt.size()) + std::max(0, request.sampling.max_tokens - 1);
}

bool same(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.token == b.token && a.logprob == b.logprob && a.top == b.top;
}

}  // namespace

SchedulerSimulation::SchedulerSimulation(uint64_t seed, std::string policy)
    : rng_(seed), seed_(seed), policy_(std::move(policy)) {
  draw_options();
  draw_habits();
  Result<std::unique_ptr<Scheduler>> scheduler = Scheduler::create(options_);
  if (!scheduler.ok()) {
    fail(scheduler.status().message());
    return;
  }
  scheduler_ = std::move(scheduler).value();
  device_ = std::make_unique<OracleDevice>(model_, options_.groups, options_.block_count,
                                           options_.max_num_seqs, options_.tiers);
}

void SchedulerSimulation::draw_options() {
  options_.max_num_seqs = pick(rng_, {1, 3, 4, 8, 16});
  options_.max_model_len = pick(rng_, {32, 64, 128});
  options_.chunked_prefill = chance(0.75);
  options_.max_num_batched_tokens =
      options_.chunked_prefill ? pick(rng_, {1, 3, 8, 16, 32, 64})
                               : options_.max_model_len + static_cast<int32_t>(rng_.below(64));
  options_.max_queued_requests = 8;
  options_.steps_in_flight_max = pick(rng_, {1, 1, 2, 2, 3});
  // One seed in three is fcfs, the others go through the table.
  const std::string drawn = kPolicies[seed_ % std::size(kPolicies)].name;
  options_.policy = chance(0.33) ? "fcfs" : policy_.empty() ? drawn : policy_;
  options_.promote_after_steps = kPromoteAfterSteps;
  options_.mlfq_quantum = pick(rng_, {1, 4});
  options_.max_prefill_seqs = pick(rng_, {1, 4});
  options_.static_computes_ended_rows = seed_ % 32 < 24;
  options_.slo_classes = {{"chat", 0.05, 0.01}, {"batch", 1.0, 0.1}};
  options_.clock = &clock_;
  options_.background_step_seconds = pick(rng_, {0.0011, 0.002, 1.0});
  options_.background_gap_seconds = pick(rng_, {0.0, 0.0011, 0.004});
  options_.tpot_target_seconds = pick(rng_, {0.0, 0.0015});
  options_.tpot_over_share = options_.tpot_target_seconds > 0 ? 0.05 : 0;
  options_.allocation = chance(0.1) ? KvAllocation::kReserveMax : KvAllocation::kPaged;
  options_.admission_cooldown_max = pick(rng_, {0, 2, 8});
  options_.end_ids = {0};
  options_.enable_prefix_caching = chance(0.75);
  options_.prefix_cache_eviction = pick(rng_, {"lru", "lru", "lfu", "cost"});
  const int64_t group_count = rng_.between(1, 3);
  for (int64_t i = 0; i < group_count; ++i) options_.groups.push_back(draw_group());
  // From "one request of full length and a page" to "never out of pages".
  const int64_t one =
      peak_pages(options_.groups, options_.max_model_len, options_.max_num_batched_tokens);
  options_.block_count = static_cast<int32_t>(chance(0.6) ? one + rng_.between(0, one)
                                                          : one * (options_.max_num_seqs + 1));
  draw_tiers(one);
  model_ = {.vocab_size = 50, .end_id = 0, .end_probability = pick(rng_, {0.0, 0.02, 0.1})};
}

// None, host memory, or disk below it: from a page to more than the pool. What loading costs lies
// on both sides of the 50 us that a token takes to compute.
void SchedulerSimulation::draw_tiers(int64_t pages_of_one) {
  const bool caches = options_.enable_prefix_caching && options_.allocation == KvAllocation::kPaged;
  const auto count = static_cast<int32_t>(caches ? rng_.below(3) : 0);
  for (int32_t tier = 0; tier < count; ++tier) {
    options_.tiers.push_back({.pages = static_cast<int32_t>(rng_.between(1, 4 * pages_of_one)),
                              .seconds_per_page = pick(rng_, {0.0, 1e-5, 2e-4})});
  }
}

KvGroupSpec SchedulerSimulation::draw_group() {
  KvGroupSpec group;
  group.block_tokens = pick(rng_, {1, 2, 4, 8, 16});
  if (options_.allocation == KvAllocation::kPaged && chance(0.3)) {
    group.kind = KvKind::kSliding;
    group.window = static_cast<int32_t>(rng_.between(1, 40));
  }
  return group;
}

void SchedulerSimulation::draw_habits() {
  habits_ = {.arrival = pick(rng_, {0.05, 0.3, 1.0}),
             .cancel = pick(rng_, {0.0, 0.01, 0.05}),
             .cancel_choice = pick(rng_, {0.0, 0.01, 0.05}),
             .fault = pick(rng_, {0.0, 0.0, 0.02}),
             .eager_apply = pick(rng_, {0.0, 0.3}),
             .prompt_max = pick(rng_, {4, 12, options_.max_model_len / 2}),
             .output_max = pick(rng_, {4, options_.max_model_len / 2, options_.max_model_len}),
             .n_max = pick(rng_, {1, 2, 5}),
             .outstanding_max = pick(rng_, {2, 8, 40}),
             .priorities = options_.policy == "priority",
             .scoring = chance(0.5),
             .sharing = pick(rng_, {0.0, 0.5, 0.9}),
             .background = pick(rng_, {0.0, 0.0, 0.5}),
             .flood = 0.8,
             .cancel_leaders = seed_ / std::size(kPolicies) % 3 == 0};
  if (habits_.cancel_leaders) habits_.cancel_choice = 0.2;
  if (options_.policy != "fair") return;
  // Both tenants have something waiting nearly always.
  habits_.arrival = 1;
  habits_.outstanding_max = 40;
  habits_.flood = 0.4;
  habits_.n_max = std::min(habits_.n_max, 2);
}

Request SchedulerSimulation::draw_request() {
  Request request;
  request.id = RequestId(next_id_++);
  draw_prompt(request);
  request.priority = habits_.priorities ? static_cast<int32_t>(rng_.below(3)) : 0;
  request.cache_salt = chance(0.5) ? "a" : "b";
  request.slo_class = static_cast<int32_t>(rng_.below(2));
  request.tenant = chance(habits_.flood) ? "flood" : "calm";
  request.background = chance(habits_.background);
  // Prompts are most of what one asks for, outputs of what the other does.
  const bool short_output = options_.policy == "fair" && request.tenant == "calm";
  SamplingParams& sampling = request.sampling;
  sampling.seed = rng_.next();
  sampling.n = static_cast<int32_t>(rng_.between(1, habits_.n_max));
  sampling.max_tokens =
      static_cast<int32_t>(rng_.between(chance(0.05) ? 0 : 1, habits_.output_max));
  if (short_output) sampling.max_tokens = std::min(sampling.max_tokens, 2);
  const auto room = options_.max_model_len - static_cast<int32_t>(request.prompt.size());
  if (chance(0.9)) sampling.max_tokens = std::min(sampling.max_tokens, room);
  sampling.min_tokens = chance(0.2) ? static_cast<int32_t>(rng_.below(8)) : 0;
  sampling.ignore_eos = chance(0.1);
  if (chance(0.2)) sampling.stop_token_ids = {static_cast<TokenId>(rng_.below(50)), 7};
  if (habits_.scoring && chance(0.5)) sampling.logprobs = static_cast<int32_t>(rng_.below(3));
  if (habits_.scoring && chance(0.7)) {
    sampling.prompt_logprobs = static_cast<int32_t>(rng_.below(3));
  }
  return request;
}

// New tokens, or those of an earlier conversation and some new ones.
void SchedulerSimulation::draw_prompt(Request& request) {
  if (!heard_.empty() && chance(habits_.sharing)) {
    const std::vector<TokenId>& earlier = heard_[rng_.below(heard_.size())];
    const auto shared =
        static_cast<ptrdiff_t>(chance(0.5) ? earlier.size() : rng_.below(earlier.size() + 1));
    request.prompt.assign(earlier.begin(), earlier.begin() + shared);
  }
  const int64_t length = rng_.between(request.prompt.empty() ? 1 : 0, habits_.prompt_max);
  for (int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(rng_.below(50)));
  }
  const auto most = static_cast<size_t>(options_.max_model_len) / 2;
  if (request.prompt.size() > most) request.prompt.resize(most);
  if (chance(0.3)) remember(request.prompt);
}

void SchedulerSimulation::remember(const std::vector<TokenId>& tokens) {
  heard_.push_back(tokens);
  if (heard_.size() > kHeardMax) heard_.pop_front();
}

std::string SchedulerSimulation::describe() const {
  std::string groups;
  for (const KvGroupSpec& group : options_.groups) {
    groups += fmt::format(" {}x{}", group.kind == KvKind::kSliding ? group.window : 0,
                          group.block_tokens);
  }
  std::string tiers;
  for (const TierSpec& tier : options_.tiers) tiers += fmt::format(", tier of {}", tier.pages);
  return fmt::format(
      "seed {}: {}{}{}, {} seqs, {} tokens a step{}, context {}, {} pages, groups{}, {} in flight, "
      "n <= {}{}",
      seed_, options_.policy, options_.allocation == KvAllocation::kReserveMax ? " reserve" : "",
      options_.enable_prefix_caching ? " cache " + options_.prefix_cache_eviction : "",
      options_.max_num_seqs, options_.max_num_batched_tokens,
      options_.chunked_prefill ? "" : " unchunked", options_.max_model_len, options_.block_count,
      groups, options_.steps_in_flight_max, habits_.n_max, tiers);
}

void SchedulerSimulation::fail(std::string what) {
  if (failure_) return;
  failure_ = fmt::format("{}\n{}\nafter {} steps; {}", what, describe(), steps_,
                         current_ == nullptr ? "between steps" : current_->to_string());
}

std::optional<std::string> SchedulerSimulation::run(int64_t steps) {
  while (!failure_ && steps_ < steps) {
    act();
    step();
  }
  draining_ = true;
  const int64_t drain_end = steps_ + kDrainStepsMax;
  while (!failure_ && (scheduler_->has_work() || !in_flight_.empty())) {
    step();
    if (steps_ > drain_end) fail("it does not come to an end");
  }
  if (!failure_) check_end();
  return failure_;
}

// --- the world

void SchedulerSimulation::act() {
  if (static_cast<int32_t>(open_.size()) < habits_.outstanding_max && chance(habits_.arrival)) {
    arrive();
  }
  if (open_.empty()) arrive();
  cancel_something();
  if (chance(habits_.fault)) fault_something();
}

void SchedulerSimulation::arrive() {
  Request request = draw_request();
  const Status status = scheduler_->add(request);
  if (!status.ok()) {
    ++tally_.refused;
    const bool named = status.code() == StatusCode::kExhausted || !status.field().empty();
    if (!named) fail("a refusal names no field: " + status.message());
    return;
  }
  ++tally_.requests;
  Clients clients{.request = request, .choices = {}, .open = request.sampling.n};
  for (int32_t choice = 0; choice < request.sampling.n; ++choice) {
    clients.choices.push_back({.tokens = request.prompt});
  }
  open_.emplace(request.id, std::move(clients));
}

SchedulerSimulation::Clients* SchedulerSimulation::random_clients() {
  if (open_.empty()) return nullptr;
  auto at = open_.begin();
  std::advance(at, static_cast<ptrdiff_t>(rng_.below(open_.size())));
  return &at->second;
}

// A request of several choices whose first has not ended and of which nothing came yet; null: none.
SchedulerSimulation::Clients* SchedulerSimulation::random_leader() {
  std::vector<Clients*> leaders;
  for (auto& [id, clients] : open_) {
    const bool begun =
        std::any_of(clients.choices.begin(), clients.choices.end(),
                    [](const Client& client) { return client.output_count > 0 || client.ended; });
    if (clients.choices.size() > 1 && !begun) leaders.push_back(&clients);
  }
  return leaders.empty() ? nullptr : leaders[rng_.below(leaders.size())];
}

void SchedulerSimulation::cancel_something() {
  if (chance(habits_.cancel)) {
    if (Clients* clients = random_clients(); clients != nullptr) {
      ++tally_.cancels;
      const RequestId id = clients->request.id;
      open_.erase(id);
      if (!scheduler_->cancel(id)) fail("cancel() does not know a running request");
      if (scheduler_->cancel(id)) fail("cancel() knows a cancelled request");
    }
  }
  if (chance(habits_.cancel_choice)) {
    // In some seeds one that leads others and has no token yet: they go on without it.
    Clients* leads = habits_.cancel_leaders ? random_leader() : nullptr;
    Clients* clients = leads != nullptr ? leads : random_clients();
    if (clients == nullptr) return;
    const auto choice =
        leads != nullptr ? 0 : static_cast<int32_t>(rng_.below(clients->choices.size()));
    const bool ended = clients->choices[static_cast<size_t>(choice)].ended;
    const RequestId id = clients->request.id;
    ++tally_.cancels;
    if (scheduler_->cancel(id, choice) == ended) fail("cancel() is wrong about a choice");
    if (!ended) end_choice(id, choice);
  }
  if (scheduler_->cancel(RequestId(next_id_ + 5))) fail("cancel() knows an unknown request");
}

void SchedulerSimulation::fault_something() {
  Clients* clients = random_clients();
  if (clients == nullptr) return;
  const auto choice = static_cast<size_t>(rng_.below(clients->choices.size()));
  if (clients->choices[choice].ended) return;
  ++tally_.faults;
  device_->inject_fault(clients->request.id, static_cast<int32_t>(choice));
  clients->choices[choice].may_fault = true;
  // While the prompt is scored, its fault is everyone's.
  if (choice == 0 && clients->request.sampling.prompt_logprobs >= 0) {
    for (Client& client : clients->choices) client.may_fault = true;
  }
}

void SchedulerSimulation::end_choice(RequestId id, int32_t choice) {
  Clients& clients = open_.at(id);
  if (chance(0.2)) remember(clients.choices[static_cast<size_t>(choice)].tokens);
  clients.choices[static_cast<size_t>(choice)].ended = true;
  if (--clients.open == 0) open_.erase(id);
}

// --- the engine's loop

void SchedulerSimulation::step() {
  StepPlan plan = scheduler_->plan();
  check_invariants();
  const bool idle = plan.empty();
  if (idle && in_flight_.empty() && scheduler_->has_work()) {
    const SchedulerStats stats = scheduler_->stats();
    fail(fmt::format("there is work and no plan: {} running, {} waiting, {} of {} pages used",
                     stats.running, stats.waiting, stats.blocks_used, stats.blocks_total));
  }
  if (!idle) submit(std::move(plan));
  const auto depth = static_cast<size_t>(options_.steps_in_flight_max);
  while (!failure_ && !in_flight_.empty() &&
         (idle || in_flight_.size() >= depth || chance(habits_.eager_apply))) {
    apply_oldest();
    if (idle) break;
  }
}

void SchedulerSimulation::submit(StepPlan plan) {
  ++steps_;
  clock_.advance_ns(1000000 + 50000 * int64_t{plan.token_count});
  current_ = &plan;
  if (watcher_) watcher_(plan);
  check_plan(plan);
  check_pages(plan);
  check_prefixes(plan);
  check_progress(plan);
  check_fairness(plan);
  if (failure_) return;
  StepResult result = device_->execute(plan);
  if (device_->mismatches() > 0) fail("the device read back a chain that was not written there");
  in_flight_.push_back({std::move(plan), std::move(result)});
  current_ = nullptr;
}

void SchedulerSimulation::apply_oldest() {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  applied_ = step.plan.step;
  current_ = &step.plan;
  note_service(step.plan);
  for (const Emission& emission : scheduler_->apply(step.plan, step.result)) {
    check_emission(emission);
  }
  check_invariants();
  current_ = nullptr;
}

// --- what must hold

void SchedulerSimulation::check_invariants() {
  if (failure_) return;
  const Status status = scheduler_->check_invariants();
  if (!status.ok()) fail(status.message());
}

void SchedulerSimulation::check_plan(const StepPlan& plan) {
  for (const Admission& admission : plan.admitted) {
    const int32_t computed = admitted_[admission.sequence].computed;
    admitted_[admission.sequence] = {admission.request->id, admission.choice,
                                     static_cast<int32_t>(admission.tokens.size()),
                                     longest(*admission.request), computed};
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
  if (work.first >= admitted.prompt_end && (work.count != 1 || !work.samples)) {
    fail("a decode is one token that samples");
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
  for (const Work& work : plan.work) {
    for (const SampleTarget& target : work.also_sample) forks.insert(target.sequence);
  }
  for (const Admission& admission : plan.admitted) {
    if (forks.contains(admission.sequence)) continue;
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

int32_t SchedulerSimulation::steps_without_work_max() const {
  const auto policy = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                   [&](const auto& row) { return row.name == options_.policy; });
  const int32_t steps_for_a_batch =
      options_.max_num_seqs * options_.max_model_len / options_.max_num_batched_tokens;
  switch (policy->patience) {
    case Patience::kInLine:
      return kStepsWithoutWorkMax;
    case Patience::kPromoted:
      // Slots, pages and budget are made free one after the other, each when a step was applied;
      // for budget those that run give way one by one.
      return kPromoteAfterSteps + kStepsWithoutWorkMax * options_.steps_in_flight_max +
             options_.max_num_seqs;
    case Patience::kPhases:
      return kStepsWithoutWorkMax + options_.max_waiting_tokens + steps_for_a_batch +
             options_.max_num_seqs;
    case Patience::kQueues:
    case Patience::kShares:
      return kStepsWithoutWorkMax + kPromoteAfterSteps +
             40 * (options_.max_model_len +
                   options_.max_model_len / options_.max_num_batched_tokens);
  }
  return 0;
}

void SchedulerSimulation::check_progress(const StepPlan& plan) {
  // Of the live ones: those in the background may starve, and delay nobody.
  const auto live = std::find_if(open_.begin(), open_.end(),
                                 [](const auto& each) { return !each.second.request.background; });
  if (live == open_.end()) return;
  const RequestId oldest = live->first;
  const bool worked = std::any_of(plan.work.begin(), plan.work.end(), [&](const Work& work) {
    return admitted_.at(work.sequence).request == oldest;
  });
  if (oldest != oldest_ || worked) oldest_waits_ = 0;
  oldest_ = oldest;
  if (worked) return;
  if (++oldest_waits_ > steps_without_work_max()) {
    fail(fmt::format("request {}, the oldest, had no work for {} steps", oldest.value,
                     oldest_waits_));
  }
}

// All of its choices: none has a slot.
bool SchedulerSimulation::is_waiting(const Clients& clients) const {
  if (clients.request.background) return false;
  return std::none_of(with_slot_.begin(), with_slot_.end(), [&](SequenceId sequence) {
    return admitted_.at(sequence).request == clients.request.id;
  });
}

// What the steps that were applied brought each tenant: 1 for a prompt token, 2 for an output
// token. Tokens that were computed before are nobody's service, those of the background neither.
void SchedulerSimulation::note_service(const StepPlan& plan) {
  for (const Work& work : plan.work) {
    Admitted& admitted = admitted_.at(work.sequence);
    const auto found = open_.find(admitted.request);
    const int32_t before = std::max(admitted.computed, work.first);
    admitted.computed = std::max(admitted.computed, work.first + work.count);
    if (found == open_.end() || found->second.request.background) continue;
    const Request& request = found->second.request;
    const auto prompt = static_cast<int32_t>(request.prompt.size());
    const double prompts = std::max(0, std::min(prompt, work.first + work.count) - before);
    const auto outputs = static_cast<double>(work.also_sample.size()) + (work.samples ? 1 : 0);
    service_gap_ += (request.tenant == "flood" ? 1 : -1) * (prompts + 2 * outputs);
    for (const SampleTarget& target : work.also_sample) {
      admitted_.at(target.sequence).computed = work.first + work.count;
    }
  }
}

// Sheng et al., OSDI 2024, theorem 4.4: 2 max(w_p x longest prompt, w_q x tokens of the batch). A
// prompt is charged as it is computed, not when it joins: what runs and is not yet charged is of
// the batch's tokens too, and w_q is the greater weight.
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
  const double bound = 2 * 2.0 * options_.max_num_seqs * options_.max_model_len;
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
      client.prompt_scored == static_cast<int32_t>(clients.request.prompt.size());
  if (emission.finish == FinishReason::kNone) return;
  if (emission.choice == 0 && clients.request.sampling.prompt_logprobs >= 0 && !whole_prompt) {
    fail("prompt log-probabilities are missing");
  }
  end_choice(emission.request, emission.choice);
}

void SchedulerSimulation::check_tokens(const Clients& clients, Client& client,
                                       const Emission& emission) {
  const Request& request = clients.request;
  const bool wants = request.sampling.logprobs >= 0;
  if (emission.logprobs.size() != (wants ? emission.tokens.size() : 0)) {
    return fail("one entry of log-probabilities per token, when asked for");
  }
  FinishReason finish = FinishReason::kNone;
  std::optional<TokenId> stop_token;
  for (size_t i = 0; i < emission.tokens.size(); ++i) {
    const TokenId expected = oracle_next_token(model_, request, emission.choice, client.tokens);
    if (emission.tokens[i] != expected) {
      return fail(fmt::format("request {} choice {}: token {} is {}, the oracle says {}",
                              request.id.value, emission.choice, client.output_count,
                              emission.tokens[i], expected));
    }
    if (wants &&
        !same(emission.logprobs[i], oracle_logprobs(model_, request.cache_salt, client.tokens,
                                                    expected, request.sampling.logprobs))) {
      return fail("wrong log-probabilities");
    }
    if (finish != FinishReason::kNone) return fail("a token after the end");
    client.tokens.push_back(expected);
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
  if (emission.prompt_first != client.prompt_scored) {
    return fail(fmt::format("prompt log-probabilities from {}, expected from {}",
                            emission.prompt_first, client.prompt_scored));
  }
  for (const TokenLogprobs& entry : emission.prompt_logprobs) {
    const auto at = static_cast<size_t>(client.prompt_scored++);
    if (at >= request.prompt.size()) return fail("log-probabilities beyond the prompt");
    if (!same(entry,
              oracle_logprobs(model_, request.cache_salt, TokenSpan(request.prompt).first(at),
                              request.prompt[at], request.sampling.prompt_logprobs))) {
      return fail("wrong prompt log-probabilities");
    }
  }
}

// That they were computed before, and for this salt, the oracle's tokens say.
void SchedulerSimulation::check_cached_tokens(const Request& request, const Emission& emission) {
  const bool may_read = options_.enable_prefix_caching && request.sampling.prompt_logprobs < 0;
  const auto most = may_read ? static_cast<int32_t>(request.prompt.size()) - 1 : 0;
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
  tally_.pages_stored = static_cast<int64_t>(stats.pages_stored);
  tally_.pages_loaded = static_cast<int64_t>(stats.pages_loaded);
  tally_.resumed_tokens = static_cast<int64_t>(stats.resumed_tokens);
  if (!open_.empty()) fail("a request got no end");
  if (stats.blocks_used != 0) fail(fmt::format("{} pages are lost", stats.blocks_used));
  if (stats.running != 0 || stats.waiting != 0) fail("something is left in a list");
}

}  // namespace headrace
