// A digest of the simulation, to show that a change of the scheduler changes nothing that it does:
// every field of every plan, every emission, and the stats beside each plan, over seeds of 100, 500
// and 3,000 steps in turn. Two builds whose digests are equal made the same decisions.
//   sim_digest [STEPS [FIRST_SEED]]
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "base/rng.h"
#include "sim/scheduler_sim.h"

namespace headrace {
namespace {

class Digest {
 public:
  uint64_t value() const { return value_; }

  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void add(T value) { value_ = mix64(value_ ^ static_cast<uint64_t>(value)); }
  void add(double value) { add(std::bit_cast<uint64_t>(value)); }
  void add(const std::string& text) {
    add(text.size());
    for (char c : text) add(static_cast<unsigned char>(c));
  }
  template <class T>
  requires requires(const T& id) { id.value; }
  void add(const T& id) { add(id.value); }
  template <class T>
  requires requires(const T& list) {
    list.begin(), list.size();
  } &&(!std::is_same_v<T, std::string>)void add(const T& list) {
    add(list.size());
    for (const auto& each : list) add(each);
  }

  void add(const GroupBlocks& blocks) {
    add(blocks.group);
    add(blocks.first_index);
    add(blocks.blocks);
  }
  void add(const ReleasedSlot& released) {
    add(released.sequence);
    add(released.slot);
  }
  void add(const Admission& admission) {
    add(admission.sequence);
    add(admission.slot);
    add(admission.choice);
    add(admission.request->id);
    add(admission.tokens);
    add(admission.blocks);
  }
  void add(const PageMove& move) {
    add(move.group);
    add(move.from.tier);
    add(move.from.page);
    add(move.to.tier);
    add(move.to.page);
  }
  void add(const BlockCopy& copy) {
    add(copy.group);
    add(copy.from);
    add(copy.to);
  }
  void add(const SampleTarget& target) {
    add(target.sequence);
    add(target.slot);
  }
  void add(const Work& work) {
    add(work.sequence);
    add(work.slot);
    add(work.first);
    add(work.count);
    add(work.rows);
    add(work.samples);
    add(work.ended);
    add(work.also_sample);
    add(work.new_blocks);
  }
  void add(const StepPlan& plan) {
    add(plan.step);
    add(plan.released);
    add(plan.admitted);
    add(plan.stores);
    if (!plan.stores_ahead.empty()) add(plan.stores_ahead);
    add(plan.loads);
    add(plan.copies);
    add(plan.work);
    add(plan.token_count);
  }
  void add(const Emission& emission) {
    add(emission.request);
    add(emission.owner);
    add(emission.choice);
    add(emission.tokens);
    add(emission.logprobs.size());
    add(emission.prompt_first);
    add(emission.prompt_logprobs.size());
    add(emission.finish);
    add(emission.stop_token.has_value());
    if (emission.stop_token) add(*emission.stop_token);
    add(emission.cached_tokens);
    add(emission.admitted);
  }
  void add(const SchedulerStats& stats) {
    for (int32_t value : {stats.running, stats.waiting, stats.background_running,
                          stats.background_waiting, stats.blocks_total, stats.blocks_used,
                          stats.blocks_cached, stats.pages_in_host, stats.pages_on_disk}) {
      add(value);
    }
    for (uint64_t value : {stats.preemptions,
                           stats.yields,
                           stats.promotions,
                           stats.steps,
                           stats.prompt_tokens,
                           stats.generation_tokens,
                           stats.idle_row_steps,
                           stats.ended_row_tokens,
                           stats.recomputed_tokens,
                           stats.dropped_tokens,
                           stats.prefix_cache_queries,
                           stats.prefix_cache_hits,
                           stats.prefix_cache_evictions,
                           stats.resumed_tokens,
                           stats.pages_moved.stored,
                           stats.pages_moved.loaded,
                           stats.pages_moved.dropped,
                           stats.background_room_tokens,
                           stats.background_used_tokens,
                           stats.background_tokens,
                           stats.beside_steps,
                           stats.beside_steps_over}) {
      add(value);
    }
    for (double value :
         {stats.displacement_seconds, stats.background_room_seconds, stats.background_used_seconds,
          stats.beside_seconds, stats.beside_seconds_max, stats.step_cost_error}) {
      add(value);
    }
    for (const StepCostTerm& term : kStepCostTerms) add(stats.step_cost.*term.coefficient);
  }

 private:
  uint64_t value_ = 0;
};

// What the runs met, so that a digest is known to speak of it.
struct Met {
  std::map<std::string, int64_t> steps_of_policy;
  uint64_t preemptions = 0, yields = 0, promotions = 0, idle_rows = 0, ended_rows = 0;
  uint64_t background = 0, beside = 0, found = 0, stored = 0, loaded = 0, dropped = 0;

  void add(const std::string& policy, int64_t steps, const SchedulerStats& stats) {
    steps_of_policy[policy] += steps;
    preemptions += stats.preemptions;
    yields += stats.yields;
    promotions += stats.promotions;
    idle_rows += stats.idle_row_steps;
    ended_rows += stats.ended_row_tokens;
    background += stats.background_tokens;
    beside += stats.beside_steps;
    found += stats.prefix_cache_hits;
    stored += stats.pages_moved.stored;
    loaded += stats.pages_moved.loaded;
    dropped += stats.dropped_tokens;
  }
  void print() const {
    for (const auto& [policy, steps] : steps_of_policy) {
      std::printf("  %s: %lld steps\n", policy.c_str(), static_cast<long long>(steps));
    }
    const auto line = [](const char* what, uint64_t count) {
      std::printf("  %s: %llu\n", what, static_cast<unsigned long long>(count));
    };
    line("preemptions", preemptions);
    line("yields", yields);
    line("promotions", promotions);
    line("steps of idle rows", idle_rows);
    line("tokens of ended rows", ended_rows);
    line("background tokens", background);
    line("background steps beside live ones", beside);
    line("tokens found in the prefix cache", found);
    line("pages stored", stored);
    line("pages loaded", loaded);
    line("tokens dropped", dropped);
  }
};

int run(int64_t steps_max, uint64_t first_seed) {
  constexpr int64_t kStepsPerSeed[] = {100, 500, 3000};
  Digest digest;
  Met met;
  int64_t steps = 0;
  uint64_t seed = first_seed;
  for (; steps < steps_max; ++seed) {
    SchedulerSimulation simulation(seed, {.check_every = 1000});
    simulation.watch([&](const StepPlan& plan) {
      digest.add(plan);
      digest.add(simulation.scheduler().stats());
    });
    simulation.watch_emissions([&](const Emission& emission) { digest.add(emission); });
    const auto failure = simulation.run(kStepsPerSeed[seed % 3]);
    steps += simulation.steps();
    if (failure) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure->c_str());
      return 1;
    }
    const std::string options = simulation.describe();  // "seed 7: fair cache lru, ..."
    const size_t policy = options.find(": ") + 2;
    met.add(options.substr(policy, options.find_first_of(" ,", policy) - policy),
            simulation.steps(), simulation.scheduler().stats());
  }
  std::printf("%016llx after %lld steps of seeds %llu to %llu\n",
              static_cast<unsigned long long>(digest.value()), static_cast<long long>(steps),
              static_cast<unsigned long long>(first_seed),
              static_cast<unsigned long long>(seed - 1));
  met.print();
  return 0;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  return headrace::run(argc > 1 ? std::atoll(argv[1]) : 1000000,
                       argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
}
