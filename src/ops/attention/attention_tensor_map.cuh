// Descriptions of the cache and of the queries for the bulk tensor copy engine.
#pragma once

#include <cuda.h>

#include "ops/attention/attention.h"
#include "ops/cuda_launch.cuh"

namespace headrace::gpu {

// `part`: the K or V part of block 0, whose heads have `head_dim` components. A box is one page
// (page.cuh) at coordinates {0, 0, 0, 2 * head, block}.
CUtensorMap page_map(const KvLayerView& kv, const std::byte* part, int32_t head_dim, int32_t chunk);

// A box is `positions` rows x the `group` query heads of a key head x one chunk, at coordinates
// {0, first query head, row, chunk number}: in shared memory [position][head][chunk], swizzled as
// pages are. Rows past the end are zero.
CUtensorMap query_map(const ConstTensorView& q, int32_t head_dim, int32_t group, int32_t positions,
                      int32_t chunk);

}  // namespace headrace::gpu
