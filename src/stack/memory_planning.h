// How a stack's memory is shared out: whether a model's weights fit, how long a sequence may be,
// how many pages the pool of keys and values has.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/kv_storage.h"
#include "engine/model_runner.h"
#include "models/model.h"
#include "stack/model_files.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

inline constexpr int32_t kKvBlockTokens = 16;

// Of a GPU's memory, beside weights and keys and values: activations, logits, recordings.
inline constexpr int64_t kGpuRunnerBytes = int64_t{4} << 30;

// Before a load. Memory that is not there would be noticed by the kernel's killer, which may take
// another program. The estimate is on the low side: what is refused cannot fit. What the load finds
// out (activations, the default pool) is counted behind it. `packed_in_file`: the weights are
// mapped, not packed. Always ok on a GPU.
Status check_load_memory(const StackOptions& options, const ModelWeights& weights,
                         const Device& device, bool packed_in_file);

// Tokens of the longest sequence. Of a model over stages `layers_most` are those of the stage that
// has most. kInvalidArgument: more than the model can.
Result<int32_t> plan_model_len(const StackOptions& options, const ModelWeights& weights,
                               const Device& device, int32_t layers_most = 0);

struct PoolPlan {
  int32_t block_count = 0;
  std::string line;                // of a GPU: the plan in words
  int64_t planned_free_bytes = 0;  // of a GPU: behind all of the plan
};

// The pool beside weights and a runner that are to be in memory. kExhausted names the flag to
// change.
Result<PoolPlan> plan_pool(const StackOptions& options, const KvPlan& kv,
                           const ModelRunnerOptions& runner, std::span<const ModelRank> ranks);

// Sequences that run at once, at most `wanted`. Contiguous memory is a whole context of
// `model_len` tokens for each of them: no more than the pool is planned for.
int32_t sequences_at_once(int32_t wanted, KvMemoryKind kind, int32_t block_count, int32_t model_len,
                          const KvPlan& kv);

}  // namespace headrace
