// The twin of StagedRunner on GPUs: each stage is a DeviceRunner of some layers on a GPU of its
// own. One thread starts a step on all of them, one after the other, and waits for the last: what
// goes from stage to stage (StageRows) is ordered by events of the GPUs, so that the second
// computes a step while the first computes the one behind it. As many sequences' steps are in
// flight as SchedulerOptions::cohorts says.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/kv_storage.h"
#include "engine/model_runner.h"
#include "engine/runner.h"

namespace headrace {

// `stages` have neighbouring layers, in their order, which are all of the model's; the last has the
// head. Their devices and models outlive the runner. `storages`: of each.
Result<std::unique_ptr<Runner>> create_staged_device_runner(std::span<const ModelRank> stages,
                                                            std::vector<KvStorage> storages,
                                                            const ModelRunnerOptions& options);

}  // namespace headrace
