// In which arithmetic a model is computed, by its weights, its device and --dtype.
#pragma once

#include "base/status.h"
#include "models/model.h"
#include "stack/load_options.h"
#include "stack/model_files.h"
#include "tensor/device.h"

namespace headrace {

// Whether the options go together. kInvalidArgument names the flag.
Status check_load_options(const LoadOptions& options, bool on_gpu);

ComputeType compute_type(const LoadOptions& options, const ModelWeights& weights, SourceKind source,
                         bool on_gpu);

// GPU: whether weights of block types become 16 bits each (--block-weights).
bool unpacks_blocks(const LoadOptions& options, const ModelWeights& weights,
                    const DeviceTraits& device);

// GPU: whether experts of block types stay so: asked for, or too many to have 16 bits on so many
// GPUs.
bool packs_experts(const LoadOptions& options, const ModelWeights& weights,
                   const DeviceTraits& device, int64_t gpus);

// GPU: whether there are experts that take more memory than the file says.
bool has_unpacked_experts(const LoadOptions& options, const ModelWeights& weights,
                          const DeviceTraits& device, int64_t gpus);

// Most of its matrices are F32, F16 or BF16.
bool has_float_matrices(const ModelWeights& weights);

}  // namespace headrace
