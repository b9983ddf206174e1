// Where a row's bits are promised to be the same whatever else is in its step: with batch_invariant
// on every CPU, at default flags on a CPU without AMX (decisions 1, 22 and 24). Tests that compare
// bits run in both of these ways.
#pragma once

#include <cstdlib>
#include <ostream>

#include "tensor/cpu_features.h"

namespace headrace {

struct EqualBits {
  const char* name;
  bool batch_invariant;
  bool may_use_amx;
};
inline constexpr EqualBits kEqualBits[] = {{"DefaultFlagsWithoutAmx", false, false},
                                           {"BatchInvariant", true, true}};
inline void PrintTo(const EqualBits& ways, std::ostream* out) { *out << ways.name; }

// While it lives, devices that are created see a CPU without AMX.
class CpuWithoutAmx {
 public:
  CpuWithoutAmx() {
    const CpuFeatures cpu = CpuFeatures::detect();
    lowered_ = cpu.amx_int8 || cpu.amx_bf16;
    if (lowered_) ::setenv("HEADRACE_CPU_ISA", "avx512", 1);
  }
  ~CpuWithoutAmx() {
    if (lowered_) ::unsetenv("HEADRACE_CPU_ISA");
  }
  CpuWithoutAmx(const CpuWithoutAmx&) = delete;
  CpuWithoutAmx& operator=(const CpuWithoutAmx&) = delete;

 private:
  bool lowered_ = false;
};

}  // namespace headrace
