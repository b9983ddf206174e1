// A seeded simulation of scheduler and KV bookkeeping on the oracle device, beside a model of what
// every client must see. One seed gives one run: options, arrivals, lengths, choices, cancels,
// faults and the moments of apply() are all drawn from it.
//
// Each step checks Scheduler::check_invariants() (in long runs: one step in `check_every`, drawn
// from the seed, and the last; what is broken stays broken, and the same seed with every step
// checked says where it began) and, from outside:
//   - tokens, log-probabilities and finish reasons equal the oracle's, each index exactly once
//   - nothing is emitted for what has ended; what has ended is unknown
//   - the token budget, the order of a plan, and that it brings work whenever there is some
//   - a page that went to a lower tier comes back as it was, and is not used before it is there
//   - a prefix that is found ends where a state is saved, and no checkpoint is saved in twice or
//   lost
//   - no page is found before the step that wrote it was applied
//   - no page is given away while a step in flight may touch it
//   - what is not computed of a prompt was computed before, for the same salt
//   - under fair the service of two tenants that both have something waiting differs by no more
//   than
//     the bound of the virtual token counter, over every stretch of steps (seen from the plans)
//   - the oldest live request gets work within the bound that its policy promises
// and at the end every request has ended and every page is free.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "sched/scheduler.h"
#include "sim/oracle_device.h"
#include "sim/oracle_search.h"

namespace headrace {

// A policy that is simulated, and what it promises: why the oldest request gets work after so many
// steps (SchedulerSimulation::steps_without_work_max()).
struct SimulatedPolicy {
  enum class Patience : uint8_t {
    kInLine,    // nobody goes before it
    kPromoted,  // after promote_after_steps nobody does
    kPhases,    // the same as kInLine, in steps of its kind
    kTurns,     // it is promoted when those that waited for longer have ended
    kReserved,  // promoted, it joins when what runs has ended
    kShares,    // its tenant's turn comes
  };
  const char* name;
  Patience patience;
};
std::span<const SimulatedPolicy> simulated_policies();

class SchedulerSimulation {
 public:
  // What the simulated world takes for a step and, beside that, for each token in it.
  static constexpr double kSecondsPerStep = 0.001, kSecondsPerToken = 0.00005;
  struct Settings {
    std::string policy;       // instead of the one that the seed draws, unless that is fcfs
    int32_t check_every = 1;  // one step of so many is checked as a whole
    std::optional<double> admission_headroom;  // instead of the one that the seed draws
    bool proposals = false;    // speculative decoding, of which the seed draws the law
    bool trees = false;        // the same, of which trees are proposed
    bool drafts = false;       // the same, of a draft model that the device has
    bool draft_trees = false;  // the same, of which trees are proposed
    // In adapter, arithmetic and look-ahead, and in how much of the answer was made elsewhere.
    bool varied_requests = false;
    bool equal_groups = false;  // each group that the seed draws as several that are alike
    bool states = false;        // sequences keep states, of which the seed draws the checkpoints
    bool beams = false;         // some requests are searches
    // Many wait, sharing their prompts, in a small pool with memory below it, under a policy that
    // moves pages ahead of need.
    bool crowded = false;
  };
  explicit SchedulerSimulation(uint64_t seed) : SchedulerSimulation(seed, Settings()) {}
  SchedulerSimulation(uint64_t seed, Settings settings);

  // Runs until `steps` plans were applied, then until everything has ended. The first thing that
  // went wrong, with the step and its plan; empty: nothing.
  std::optional<std::string> run(int64_t steps);

  int64_t steps() const { return steps_; }
  std::string describe() const;  // the options drawn
  // Is called with each plan before it is checked.
  void watch(std::function<void(const StepPlan&)> watcher) { watcher_ = std::move(watcher); }
  void watch_emissions(std::function<void(const Emission&)> watcher) {
    emission_watcher_ = std::move(watcher);
  }
  const Scheduler& scheduler() const { return *scheduler_; }

  struct Tally {
    int64_t requests = 0, refused = 0, cancels = 0, faults = 0, tokens = 0, forks = 0, copies = 0;
    int64_t preemptions = 0, dropped_tokens = 0;
    int64_t searches = 0;  // that ended
    int64_t cached_tokens = 0, evictions = 0, yields = 0, promotions = 0;
    int64_t pages_stored = 0, pages_loaded = 0, resumed_tokens = 0;
    int64_t states_saved = 0, states_restored = 0, states_evicted = 0;
    int64_t steps_backlogged = 0;  // in which both tenants had something waiting, under fair
    double gap_share_max = 0;      // of the bound on their service
    double wait_share_max = 0;     // of the bound on the oldest one's steps without work
    double service_share_max = 0;  // of the bound on others' service meanwhile, under fair
  };
  const Tally& tally() const { return tally_; }

 private:
  struct Client {                 // what one choice has received
    std::vector<TokenId> tokens;  // prompt, then output
    OracleChain heard;            // of them
    OracleChain scored;           // of the prompt as far as log-probabilities came
    int32_t output_count = 0;
    int64_t last_work = 0;  // the step; before it: in which it came
    bool ended = false;
    bool may_fault = false;
  };
  struct Clients {
    Request request;
    std::vector<Client> choices;  // of a search its beams, of which the first n have answers
    int32_t open = 0;
    std::vector<BeamAnswer> found{};  // by a search
  };
  struct Admitted {
    RequestId request;
    int32_t choice = 0;
    int32_t prompt_end = 0;  // tokens from here on are decoded
    int32_t longest = 0;     // no token from here on is computed
    int32_t computed = 0;    // the longest that it was
    bool beam = false;       // of a search
  };
  struct InFlight {
    StepPlan plan;
    StepResult result;
  };
  struct Habits {  // how the world behaves under this seed
    double arrival, cancel, cancel_choice, fault, eager_apply;
    int32_t prompt_max, output_max, n_max, outstanding_max;
    bool priorities, scoring;
    double sharing;     // of prompts that begin as another did
    double background;  // of requests
    double flood;       // of requests, the tenant that sends more
    bool cancel_leaders;
    bool one_salt = false;  // whose prompts are all shared
  };

  void draw_options();
  void draw_habits();
  KvGroupSpec draw_group();
  void draw_tiers(int64_t pages_of_one);
  Request draw_request();
  void draw_prompt(Request& request);
  void remember(const std::vector<TokenId>& tokens);
  bool chance(double probability) { return rng_.uniform() < probability; }

  void act();  // arrivals, cancels, faults
  void arrive();
  void cancel_something();
  void fault_something();
  Clients* random_clients();
  Clients* random_leader();
  void end_choice(RequestId id, int32_t choice);

  void step();
  void submit(StepPlan plan);
  void apply_oldest();
  void check_plan(const StepPlan& plan);
  void check_work(const Work& work);
  bool has_ended(const Admitted& admitted) const;
  void check_pages(const StepPlan& plan);
  void check_prefixes(const StepPlan& plan);
  void check_fairness(const StepPlan& plan);
  void note_service(const StepPlan& plan, const StepResult& result);
  bool is_waiting(const Clients& clients) const;
  void check_progress(const StepPlan& plan);
  void note_work(const StepPlan& plan);
  bool pays_for_displacement();
  void check_service_of_others(RequestId oldest);
  int64_t steps_without_work_max() const;
  double service_without_work_max() const;
  double service_gap_max() const;
  int64_t tokens_to_its_end(int32_t length) const;
  void check_emission(const Emission& emission);
  void check_tokens(const Clients& clients, Client& client, const Emission& emission);
  void check_prompt_logprobs(const Clients& clients, Client& client, const Emission& emission);
  void check_cached_tokens(const Request& request, const Emission& emission);
  FinishReason expected_finish(const Request& request, const Client& client,
                               std::optional<TokenId>& stop_token) const;
  void check_invariants();
  void check_end();
  void fail(std::string what);

  Rng rng_;
  const uint64_t seed_;
  const Settings settings_;
  SchedulerOptions options_;
  Habits habits_{};
  VirtualClock clock_;
  OracleModel model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<OracleDevice> device_;
  std::deque<InFlight> in_flight_;
  std::deque<std::vector<TokenId>> heard_;  // prompts and whole conversations, to begin with
  std::map<RequestId, Clients> open_;
  std::map<SequenceId, Admitted> admitted_;
  std::set<SequenceId> with_slot_;
  // Of "flood" less that of "calm": now, and its range since both have had something waiting.
  double service_gap_ = 0;
  double served_ = 0;  // to all live requests
  std::optional<std::pair<double, double>> gap_range_;
  uint64_t next_id_ = 1;
  uint64_t applied_ = 0;
  int64_t steps_ = 0;
  bool draining_ = false;
  RequestId oldest_;
  int64_t oldest_waits_ = 0, oldest_last_work_ = 0;
  double served_at_last_work_ = 0, served_last_checked_ = 0;  // of the oldest
  int64_t patience_ = -1;  // steps that it may wait; < 0: not asked yet
  Tally tally_;
  std::function<void(const StepPlan&)> watcher_;
  std::function<void(const Emission&)> emission_watcher_;
  const StepPlan* current_ = nullptr;  // submitted or applied right now
  std::optional<std::string> failure_;
};

}  // namespace headrace
