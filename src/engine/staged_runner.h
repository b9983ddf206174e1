// StagedRunner: a model whose layers are shared out over stages (pipeline parallelism; GPipe, Huang
// et al., 2019), on a CPU. Each stage is a thread with threads, weights and pages of its own; a
// step goes from one to the next, and while the second stage computes a step the first computes the
// one behind it. As many steps are in flight as there are stages, of sequences that none of the
// others has (SchedulerOptions::cohorts).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/model_runner.h"
#include "engine/rank_compute.h"
#include "engine/runner.h"
#include "tensor/thread_ranks.h"

namespace headrace {

// `stages` have neighbouring layers, in their order, which are all of the model's; the last has the
// head. Their devices and models outlive the runner, `group` is what `computes` were made with.
std::unique_ptr<Runner> create_staged_runner(std::span<const ModelRank> stages,
                                             std::vector<std::unique_ptr<RankCompute>> computes,
                                             std::unique_ptr<ThreadRanks> group,
                                             ModelRunnerOptions options);

}  // namespace headrace
