// RankedRunner: a model that is split over GPUs. Each rank has a whole DeviceRunner and computes
// the same plans; their kernels meet in collectives (ops/ranks), and every rank samples the same
// tokens from the same logits, so that no rank waits for another's on the host.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/model_runner.h"

namespace headrace {

// `storages` [ranks]. The devices and the models outlive the runner.
Result<std::unique_ptr<Runner>> create_ranked_runner(std::span<const ModelRank> ranks,
                                                     std::vector<KvStorage> storages,
                                                     const ModelRunnerOptions& options);

}  // namespace headrace
