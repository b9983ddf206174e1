// How linear on the CPU computes block types: which tiles, and how the work is dealt to threads. A
// pure function of sizes, so that its choices are a table in a test.
#pragma once

#include <cstdint>

#include "ops/linear/cpu_isa.h"

namespace headrace {

enum class LinearMethod {
  kFlat,    // weights are unpacked in registers, for one tile of rows after the other
  kPanels,  // weights are unpacked to memory once for a block of rows (cpu_panels.inc)
};

enum class LinearDeal {
  kOneThread,  // waking another would cost more than it saves
  kShares,     // bound by memory: each thread reads the same contiguous share at every step
  kPieces,     // bound by arithmetic: small pieces to whoever is free, which evens out other load
  kRowShares,  // the same, but each thread begins with the pieces of its own rows of x and y
};

struct LinearCpuPlan {
  LinearMethod method;
  LinearDeal deal;
  int32_t tile_rows;  // of x, staged together
  int64_t row_block;  // rows of x that weights are passed over at once; whole tiles
  const LinearFloatKernel* floats = nullptr;  // what x is staged as; null: QuantisedBlock
  friend bool operator==(const LinearCpuPlan&, const LinearCpuPlan&) = default;
};

struct LinearCpuSize {
  int64_t m, n, k;
};

LinearCpuPlan plan_linear_cpu(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads);

}  // namespace headrace
