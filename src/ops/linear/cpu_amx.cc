// linear for BF16 weights with AMX.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/amx_tiles.inc"
#include "ops/linear/cpu_avx512.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"

#include "ops/linear/cpu_amx.inc"

}  // namespace

constinit const LinearFloatKernels kLinearAmxFloats = {&kLinearAvx512F32, &kLinearAvx512F16,
                                                       &kAmxTiles<AmxTuning{}>};

}  // namespace headrace
