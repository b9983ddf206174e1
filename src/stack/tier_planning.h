// The memory below the KV pool (--kv-offloading-size, --kv-disk-size): how much of it there is, and
// what a page of it costs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/kv_storage.h"
#include "engine/kv_tiers.h"
#include "kv/tier_pool.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

// Of host memory.
int64_t tier_bytes(const TierOptions& options);

// Null: no tiers are asked for. kInvalidArgument names flags that do not go together.
Result<std::shared_ptr<KvTiers>> create_tiers(const StackOptions& options, const KvPlan& kv,
                                              Device& device);

// What the scheduler is told of them, from the nearest. `tiers` may be null.
Result<std::vector<TierSpec>> tier_specs(const KvTiers* tiers, PreemptionMode mode, Device& device);

}  // namespace headrace
