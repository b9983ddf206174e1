// What linear_amx_bench compares: the kernels of AMX with other constants, and loops that have one
// part of their work alone.
#pragma once

#include <stdint.h>

#include "ops/linear/cpu_isa.h"

namespace headrace {

struct AmxPanelVariant {
  const char* name;
  LinearPanelKernels kernels;
};
// Of block types; the first is the one that linear uses.
extern const AmxPanelVariant kAmxPanelVariants[];
extern const int kAmxPanelVariantCount;

struct AmxTileVariant {
  const char* name;
  LinearFloatKernel kernel;
};
// Of BF16; the first is the one that linear uses.
extern const AmxTileVariant kAmxTileVariants[];
extern const int kAmxTileVariantCount;

// On the calling thread; where no size is given, all data in the first-level cache.
struct AmxProbe {
  const char* name;
  int64_t products_per_round;  // of 16 x 16 x 32 columns
  void (*run)(int64_t rounds);
};
extern const AmxProbe kAmxProbes[];
extern const int kAmxProbeCount;

}  // namespace headrace
