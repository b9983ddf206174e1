// Whether packed weights are kept in a file for later starts (--packed-cache), and what weights are
// packed only behind the first step (--pack-weights). Of the CPU only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/timeline.h"
#include "models/model.h"
#include "stack/load_options.h"
#include "stack/model_files.h"
#include "tensor/device.h"
#include "weights/packed_cache.h"

namespace headrace {

// The file of these weights, there or not. Null: none is to be looked for. Not where memory belongs
// to nodes, each of which packs what it will read, nor for weights that come from more than files
// of tensors.
std::unique_ptr<PackedCache> open_packed_cache(const LoadOptions& options, const std::string& model,
                                               const ModelWeights& weights, ComputeType compute,
                                               Device& device, Timeline* timeline);

// Whether `bytes` of packed weights that no file has are worth one.
bool worth_keeping(const PackedCache& cache, int64_t bytes, PackedCacheUse use);

// Weights of no file are not there to be read again.
bool packs_at_use(const LoadOptions& options, const ModelWeights& weights, Device& device);

}  // namespace headrace
