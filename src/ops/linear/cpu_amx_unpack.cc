// linear of many rows with AMX for block types, unpacked to BF16 tiles.
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
#include "ops/linear/cpu_amx_unpack.inc"

}  // namespace

constinit const LinearPanelKernels kLinearAmxUnpacked = unpacked_table<Avx512, AmxTuning{}>();

}  // namespace headrace
