// linear on CUDA for few rows, where reading W is all the time there is: W streams through shared
// memory once, and its first part is on its way before the kernels before this one have ended.
#pragma once

#include "ops/linear/linear.h"
#include "ops/rows/activation_row.h"

namespace headrace {

struct Float8Rows;  // float8.h

inline constexpr int32_t kStreamColumns =
    64;  // of K, a step: rows of 128 bytes (of FP8 twice that)

// How W [N, K] is cut into thread blocks. It depends on N, K and the device alone, never on M: a
// row of y has one order of arithmetic, whatever stands beside it.
struct StreamPlan {
  int32_t tile_rows = 0;  // rows of W that a block multiplies at a time
  int32_t splits = 0;     // blocks of a cluster that share the columns of a tile
  int32_t tiles = 0;
  int32_t clusters = 0;  // that run at a time; each takes every clusters-th tile
};
// `gated`: a tile is half gate rows and half up rows, W [2F, K].
StreamPlan plan_stream(int64_t n, int64_t k, bool gated, int32_t sm_count);

// Most rows of x at which W is read once; more are taken kStreamRowsMax at a time.
inline constexpr int32_t kStreamRowsMax = 128;

// y = act(gate) * up of a row of x W^T = [gate, up] where `gate` is there, else as linear.
struct StreamArgs {
  LinearArgs linear;  // y: [M, N], gated [M, N / 2]
  const Activation* gate = nullptr;
  const Float8Rows* rows = nullptr;  // of x, where they are there already
};
// W is of x's type; of FP8 rows of x become FP8 first (float8.h), and the products are of FP8.
bool stream_fits(const DeviceTraits& traits, const StreamArgs& args);
void run_stream(OpContext& context, const StreamArgs& args);

}  // namespace headrace
