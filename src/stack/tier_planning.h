// The memory below the KV pool (--kv-offloading-size, --kv-disk-size): how much of it there is, and
// what a page of it costs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/kv_storage.h"
#include "engine/kv_tiers.h"
#include "engine/model_runner.h"
#include "kv/tier_pool.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

// Of host memory.
int64_t tier_bytes(const TierOptions& options);

// Of each rank, all of as many pages. Empty: none are asked for. `kv` is of all ranks together.
// kInvalidArgument names flags that do not go together.
Result<std::vector<std::shared_ptr<KvTiers>>> create_tiers(const StackOptions& options,
                                                           const KvPlan& kv,
                                                           std::span<const ModelRank> ranks);

// What the scheduler is told of them, from the nearest. `tiers` may be empty.
Result<std::vector<TierSpec>> tier_specs(std::span<const std::shared_ptr<KvTiers>> tiers,
                                         PreemptionMode mode, Device& device);

}  // namespace headrace
