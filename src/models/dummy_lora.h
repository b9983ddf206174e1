// Random adapters of a model: for measuring speed and memory, and for tests.
#pragma once

#include <span>

#include "models/layer_tensors.h"
#include "weights/lora_file.h"

namespace headrace {

struct DummyLoraOptions {
  int32_t rank = 16;
  uint64_t seed = 0;
  float deviation = 0.02f;  // of the numbers of both factors
  float scale = 2.0f;
};

// Over every matrix that takes adapters, in F32. `sites`: Model::adapter_sites().
LoraFile dummy_lora(std::span<const MatrixStack> sites, const DummyLoraOptions& options);

}  // namespace headrace
