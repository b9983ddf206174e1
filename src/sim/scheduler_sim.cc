#include "sim/scheduler_sim.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/oracle_drafts.h"

namespace headrace {
namespace {

constexpr int32_t kPromoteAfterSteps = 60;
constexpr int64_t kDrainStepsMax = 200000;
constexpr size_t kHeardMax = 12;

template <class T, size_t N>
T pick(Rng& rng, const T (&values)[N]) {
  return values[rng.below(N)];
}

// Adapter, arithmetic and look-ahead. Not from rng_, so that a seed has the same requests with and
// without them.
void vary(Request& request, uint64_t seed) {
  const uint64_t bits = mix64(seed ^ mix64(static_cast<uint64_t>(request.id.value)));
  request.adapter = bits % 2;
  request.arithmetic = bits / 2 % 2;
  request.lookahead = bits / 4 % 2 == 0 ? Lookahead::kBlind : Lookahead::kAfterResult;
}

// Of some requests the first tokens of the answer were made elsewhere.
void begin_elsewhere(Request& request, const OracleModel& model, uint64_t seed) {
  const SamplingParams& sampling = request.sampling;
  const uint64_t bits = mix64(seed ^ mix64(static_cast<uint64_t>(request.id.value) + 0x616eu));
  if (sampling.n != 1 || sampling.prompt_logprobs >= 0 || bits % 3 != 0) return;
  const int32_t most = std::min(sampling.max_tokens - 1, static_cast<int32_t>(bits / 4 % 24));
  OracleChain chain(request, request.prompt);
  for (int32_t i = 0; i < most; ++i) {
    const TokenId token = chain.next_token(model, sampling.seed.value_or(0), 0);
    const auto& stops = sampling.stop_token_ids;
    if (token == model.end_id || std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    request.answered.push_back(token);
    chain.append(token);
  }
}

// Not from rng_, so that a seed has the same options with and without them.
ProposalOptions proposals_of(uint64_t seed, const OracleModel& model) {
  constexpr double kRight[] = {0, 0.3, 0.7, 1};
  const uint64_t bits = mix64(seed ^ 0x70726f706f73616cu);
  return {
      .tokens_max = 1 + static_cast<int32_t>(bits % 8),
      .source = std::make_shared<OracleDrafts>(model, seed, kRight[bits / 8 % std::size(kRight)])};
}

// The same with trees, some of them of the most tokens.
ProposalOptions trees_of(uint64_t seed, const OracleModel& model) {
  constexpr double kRight[] = {0, 0.3, 0.7, 1};
  constexpr int32_t kTokens[] = {2, 6, 20, TokenTree::kTokensMax};
  const uint64_t bits = mix64(seed ^ 0x7472656573u);
  const auto width = static_cast<int32_t>(2 + bits / 128 % 3);
  return {.tokens_max = 1 + static_cast<int32_t>(bits % 8),
          .tree_width = width,
          .tree_tokens = kTokens[bits / 8 % std::size(kTokens)],
          .source = std::make_shared<OracleDrafts>(model, seed,
                                                   kRight[bits / 32 % std::size(kRight)], width)};
}

// Half of them weigh what drafts cost.
ProposalOptions drafts_of(uint64_t seed) {
  const uint64_t bits = mix64(seed ^ 0x647261667473u);
  return {.method = ProposalMethod::kDraftModel,
          .tokens_max = 1 + static_cast<int32_t>(bits % 8),
          .whatever_they_cost = bits / 8 % 2 == 0};
}

// Some whose form the device is told, as heads are, or which is a part of one tree.
ProposalOptions draft_trees_of(uint64_t seed) {
  ProposalOptions options = drafts_of(seed);
  constexpr int32_t kTokens[] = {2, 6, 20, TokenTree::kTokensMax};
  const uint64_t bits = mix64(seed ^ 0x64726166747472u);
  options.tree_width = static_cast<int32_t>(2 + bits % 3);
  options.tree_tokens = kTokens[bits / 4 % std::size(kTokens)];
  if (bits / 16 % 2 == 0) options.method = ProposalMethod::kMedusa;
  if (bits / 32 % 4 == 0) {
    options.tree = {{0, 1, 0, 1, 0, 0, 1}, {-1, -1, 0, 0, 1, 2, 2}};
    options.tokens_max = 3, options.tree_width = 2, options.tree_tokens = 7;
  }
  return options;
}

double draft_rightness(uint64_t seed) {
  constexpr double kRight[] = {0, 0.5, 0.8, 1};
  return kRight[mix64(seed ^ 0x7269676874u) % std::size(kRight)];
}

// As layers of one kind are (engine/kv_plan.h): one to six groups of each, nine at most, pages of
// one size. Not from rng_ either.
std::vector<KvGroupSpec> split_as_layers(const std::vector<KvGroupSpec>& kinds, uint64_t seed) {
  std::vector<KvGroupSpec> groups;
  uint64_t bits = mix64(seed ^ 0x67726f757073u);
  for (KvGroupSpec group : kinds) {
    group.block_tokens = kinds.front().block_tokens;
    for (uint64_t left = 1 + bits % 6; left > 0 && groups.size() < 9; --left) {
      groups.push_back(group);
    }
    bits /= 6;
  }
  return groups;
}

// From none to more than are ever used. Not from rng_ either.
void keep_states(SchedulerOptions& options, uint64_t seed) {
  constexpr int32_t kCheckpoints[] = {0, 1, 2, 4, 16, 16, 64, 1000};
  options.state_checkpoints = kCheckpoints[mix64(seed ^ 0x737461746573u) % std::size(kCheckpoints)];
  options.tiers.clear();
}

// Not from rng_ either.
void crowd(SchedulerOptions& options, uint64_t seed) {
  const uint64_t bits = mix64(seed ^ 0x63726f7764u);
  options.policy = "mlfq";
  options.max_queued_requests = 64;
  options.max_num_seqs = std::max(options.max_num_seqs, 4);
  options.allocation = KvAllocation::kPaged;
  options.enable_prefix_caching = true;
  const auto one = static_cast<int32_t>(
      peak_pages(options.groups, options.max_model_len, options.max_num_batched_tokens));
  options.block_count = one + static_cast<int32_t>(bits % 64) * one / 64;
  options.tiers = {
      {.pages = one * (1 + static_cast<int32_t>(bits / 64 % 8)), .seconds_per_page = 1e-5}};
}

}  // namespace

SchedulerSimulation::SchedulerSimulation(uint64_t seed, Settings settings)
    : rng_(seed), seed_(seed), settings_(std::move(settings)) {
  draw_options();
  draw_habits();
  if (settings_.crowded) crowd(options_, seed_);
  if (settings_.proposals) options_.proposals = proposals_of(seed_, model_);
  if (settings_.trees) options_.proposals = trees_of(seed_, model_);
  if (settings_.drafts) options_.proposals = drafts_of(seed_);
  if (settings_.draft_trees) options_.proposals = draft_trees_of(seed_);
  if (settings_.states) keep_states(options_, seed_);
  Result<std::unique_ptr<Scheduler>> scheduler = Scheduler::create(options_);
  if (!scheduler.ok()) {
    fail(scheduler.status().message());
    return;
  }
  scheduler_ = std::move(scheduler).value();
  device_ = std::make_unique<OracleDevice>(model_, options_.groups, options_.block_count,
                                           options_.max_num_seqs, options_.tiers,
                                           options_.state_checkpoints);
  if (settings_.drafts || settings_.draft_trees) {
    device_->set_drafts(seed_, draft_rightness(seed_));
  }
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
  const std::span<const SimulatedPolicy> policies = simulated_policies();
  const std::string drawn = policies[seed_ % policies.size()].name;
  options_.policy = chance(0.33) ? "fcfs" : settings_.policy.empty() ? drawn : settings_.policy;
  options_.promote_after_steps = kPromoteAfterSteps;
  options_.mlfq_quantum_seconds = pick(rng_, {0.0, 0.004});
  options_.openppl.joining_max = pick(rng_, {1, 4});
  options_.static_computes_ended_rows = seed_ % 32 < 24;
  options_.slo_classes = {{"chat", 0.05, 0.01}, {"batch", 1.0, 0.1}};
  options_.clock = &clock_;
  options_.background.step_seconds = pick(rng_, {0.0011, 0.002, 1.0});
  options_.background.gap_seconds = pick(rng_, {0.0, 0.0011, 0.004});
  options_.tpot_target_seconds = pick(rng_, {0.0, 0.0015});
  options_.tpot_over_share = options_.tpot_target_seconds > 0 ? 0.05 : 0;
  options_.allocation = chance(0.1) ? KvAllocation::kReserveMax : KvAllocation::kPaged;
  options_.openppl.cooldown_max = pick(rng_, {0, 2, 8});
  // Not from rng_, so that older seeds give the runs that they gave before there was headroom.
  constexpr double kHeadroom[] = {0, 0, 1, 1.5};
  options_.admission_headroom = settings_.admission_headroom.value_or(kHeadroom[mix64(seed_) % 4]);
  if (mix64(seed_ + 1) % 4 == 0) options_.cohorts.count = options_.steps_in_flight_max;
  options_.end_ids = {0};
  options_.enable_prefix_caching = chance(0.75);
  options_.prefix_cache_eviction = pick(rng_, {"lru", "lru", "lfu", "cost"});
  const int64_t group_count = rng_.between(1, 3);
  for (int64_t i = 0; i < group_count; ++i) options_.groups.push_back(draw_group());
  if (settings_.equal_groups) options_.groups = split_as_layers(options_.groups, seed_);
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
             .cancel_leaders = seed_ / simulated_policies().size() % 3 == 0};
  if (habits_.cancel_leaders) habits_.cancel_choice = 0.2;
  if (settings_.crowded) {
    habits_.arrival = 1;
    habits_.outstanding_max = 40;
    habits_.sharing = 0.9;
    habits_.background = 0;
    habits_.one_salt = true;
  }
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
  request.cache_salt = chance(0.5) || habits_.one_salt ? "a" : "b";
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
      "n <= {}, headroom {}{}{}",
      seed_, options_.policy, options_.allocation == KvAllocation::kReserveMax ? " reserve" : "",
      options_.enable_prefix_caching ? " cache " + options_.prefix_cache_eviction : "",
      options_.max_num_seqs, options_.max_num_batched_tokens,
      options_.chunked_prefill ? "" : " unchunked", options_.max_model_len, options_.block_count,
      groups, options_.steps_in_flight_max, habits_.n_max, options_.admission_headroom, tiers,
      options_.state_checkpoints ? fmt::format(", {} checkpoints", *options_.state_checkpoints)
                                 : "");
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
  if (settings_.varied_requests) {
    vary(request, seed_);
    begin_elsewhere(request, model_, seed_);
  }
  const bool search =
      settings_.beams && make_search(request, seed_, std::min(6, options_.max_num_seqs));
  const Status status = scheduler_->add(request);
  if (!status.ok()) {
    ++tally_.refused;
    const bool named = status.code() == StatusCode::kExhausted || !status.field().empty();
    if (!named) fail("a refusal names no field: " + status.message());
    return;
  }
  ++tally_.requests;
  Clients clients{.request = request, .choices = {}, .open = request.sampling.n};
  Client client{.tokens = request.prompt,
                .heard = OracleChain(request, request.prompt),
                .scored = OracleChain(request, TokenSpan(request.prompt).first(1)),
                .output_count = static_cast<int32_t>(request.answered.size()),
                .last_work = steps_};
  for (const TokenId token : request.answered) {
    client.tokens.push_back(token);
    client.heard.append(token);
  }
  clients.choices.assign(static_cast<size_t>(request.sequences()), client);
  if (search) {
    clients.found = oracle_search(model_, request, options_.end_ids, options_.max_model_len);
    prepare_search(clients.request, options_.end_ids.size());
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
    if (clients->request.beams) return;  // its beams are nobody's to cancel
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
  // While the prompt is scored, its fault is everyone's, as that of a beam is.
  const bool scored = choice == 0 && clients->request.sampling.prompt_logprobs >= 0;
  if (clients->request.beams || scored) {
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
  clock_.advance_ns(static_cast<int64_t>(1e9 * kSecondsPerStep) +
                    static_cast<int64_t>(1e9 * kSecondsPerToken) * plan.token_count);
  current_ = &plan;
  if (watcher_) watcher_(plan);
  check_plan(plan);
  check_pages(plan);
  check_prefixes(plan);
  check_progress(plan);
  check_fairness(plan);
  if (failure_) return;
  StepResult result = device_->execute(plan);
  clock_.advance_ns(static_cast<int64_t>(1e9 * result.drafting.seconds));
  if (device_->mismatches() > 0) fail("the device read back a chain that was not written there");
  in_flight_.push_back({std::move(plan), std::move(result)});
  current_ = nullptr;
}

void SchedulerSimulation::apply_oldest() {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  applied_ = step.plan.step;
  current_ = &step.plan;
  note_service(step.plan, step.result);
  for (const Emission& emission : scheduler_->apply(step.plan, step.result)) {
    if (emission_watcher_) emission_watcher_(emission);
    check_emission(emission);
  }
  check_invariants();
  current_ = nullptr;
}

}  // namespace headrace
