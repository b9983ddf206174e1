// For tests: the kernels of AMX compiled over emulated tiles (amx_emulation.h). They need AVX-512
// with VNNI and BF16 for what is no tile instruction.
#pragma once

#include "ops/linear/cpu_isa.h"

namespace headrace {

extern const LinearPanelKernels kLinearAmxEmulatedUnpacked;
extern const LinearFloatKernels kLinearAmxEmulatedFloats;
// Blocks of few rows and columns, so that small tests cross their edges.
extern const LinearPanelKernels kLinearAmxEmulatedSmallUnpacked;
extern const LinearFloatKernels kLinearAmxEmulatedSmallFloats;

}  // namespace headrace
