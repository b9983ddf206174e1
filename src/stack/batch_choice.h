// BatchChoice: what flags say of sequences, tokens a step and policy, and what the machine and the
// work say where they do not (engine/batch_shape.h).
#pragma once

#include <cstdint>
#include <string>

#include "engine/batch_shape.h"
#include "engine/kv_storage.h"
#include "models/model.h"
#include "stack/memory_planning.h"
#include "stack/stack_options.h"
#include "tensor/device.h"

namespace headrace {

struct BatchChoice {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  std::string policy;  // of the scheduler
  RequestOrder job_order = RequestOrder::kArrival;
  std::string order_label;
  std::string line;
};

// What the machine has for a model that is loaded; of several ranks what the first has, on a CPU
// with all their weights.
BatchShapeInput batch_machine(const Device& device, const Model& model, int64_t weight_bytes,
                              const KvPlan& kv, const MemoryOptions& options);

// `machine`: without the job, which the options have.
BatchChoice choose_batch(const BatchShapeOptions& options, BatchShapeInput machine);

}  // namespace headrace
