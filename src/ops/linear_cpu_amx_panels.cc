// linear of many rows with AMX: panels of bytes and tdpbssd, scaled in AVX-512 registers.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/amx_tiles.inc"
#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

#include "ops/linear_cpu_unpack.inc"

#include "ops/linear_cpu_amx_panels.inc"

}  // namespace

constinit const LinearPanelKernels kLinearAmxPanels = amx_panel_table<Avx512, AmxPanelTuning{}>();

}  // namespace headrace
