// ModelRunner: steps on a device. Joins SlotTable, BatchBuilder, KvStorage, Model and Sampler; each
// of them knows its own part. On the CPU submit_forward() computes at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/kv_storage.h"
#include "engine/runner.h"
#include "models/model.h"
#include "tensor/communicator.h"
#include "tensor/device.h"

namespace headrace {

struct ModelRunnerOptions {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t block_count = 0;
  std::vector<TokenId> end_ids;
  ForwardTaps taps;
};

// The device and the model outlive the runner. The plan is plan_kv()'s for this model.
Result<std::unique_ptr<Runner>> create_model_runner(Device& device, const Model& model, KvPlan plan,
                                                    ModelRunnerOptions options);

}  // namespace headrace
