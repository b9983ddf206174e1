// The simulation alone, for mutants: seeds of 100 and 500 steps in turn (many options are met; some
// faults need a long run), a seventh of them with states, of the others a third with proposals
// (half of them trees, a quarter trees of drafts) and an eighth with searches, a fifth with
// requests of several prefix keys and look-aheads, until something is wrong or the steps are used
// up.
//   mutant_sim [STEPS [FIRST_SEED]]
// Exit status 1 and one line: what was wrong.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sim/scheduler_sim.h"

int main(int argc, char** argv) {
  constexpr int64_t kStepsPerSeed[] = {100, 500};
  const int64_t steps_max = argc > 1 ? std::atoll(argv[1]) : 1000000;
  const uint64_t first_seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  int64_t steps = 0;
  for (uint64_t seed = first_seed; steps < steps_max; ++seed) {
    const bool states = seed % 7 == 0;
    headrace::SchedulerSimulation simulation(seed, {.proposals = seed % 3 == 0 && !states,
                                                    .trees = seed % 6 == 0 && !states,
                                                    .draft_trees = seed % 12 == 3 && !states,
                                                    .varied_requests = seed % 5 == 0,
                                                    .states = states,
                                                    .beams = seed % 8 == 0 && !states});
    const auto failure = simulation.run(kStepsPerSeed[seed % 2]);
    steps += simulation.steps();
    if (failure) {
      std::printf("seed %llu, after %lld steps: %s\n", static_cast<unsigned long long>(seed),
                  static_cast<long long>(steps), failure->c_str());
      return 1;
    }
  }
  std::printf("nothing was wrong in %lld steps\n", static_cast<long long>(steps));
  return 0;
}
