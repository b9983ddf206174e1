// gated_linear on CUDA for many rows (prompts, mixed steps), where the tensor cores are all the
// time there is: y = act(gate) * up of [gate, up] = x W^T (+ bias), without gate and up ever
// leaving the registers. The product alone, without a gate, was no faster than the library's.
#pragma once

#include "ops/linear/linear.h"
#include "ops/rows/activation_row.h"

namespace headrace {

struct WgmmaPlan {
  int32_t tile_rows = 0;  // rows of W of a tile: 256 or 128
  int32_t clusters = 0;   // of two thread blocks, that run at a time
  double filled = 0;      // of the products that its rounds of tiles could do, those of x and W
};
// Of [gate, up] [m, n] on a device of so many multiprocessors.
WgmmaPlan plan_wgmma(int64_t m, int64_t n, int32_t sm_count);

inline constexpr int64_t kWgmmaRowsMin = 256;  // fewer leave half a cluster without rows

struct WgmmaArgs {
  ConstTensorView x;           // [M, K]
  const LinearWeight* weight;  // [N, K]: gate's rows, then up's
  const float* bias;           // [N] or null
  Activation activation;
  TensorView y;  // [M, N / 2]
};
bool wgmma_fits(const DeviceTraits& traits, const WgmmaArgs& args);
void run_wgmma(OpContext& context, const WgmmaArgs& args);

}  // namespace headrace
