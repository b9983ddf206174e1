#include "ops/linear/cpu_amx_emulated.h"

#include <immintrin.h>

#include "ops/amx_emulation.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/amx_tiles_emulated.inc"
#include "ops/linear/cpu_avx512.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"

#include "ops/linear/cpu_amx.inc"
#include "ops/linear/cpu_amx_unpack.inc"

constexpr AmxTuning kSmallBlocks{.block_tiles = 16,
                                 .groups = 2,
                                 .stretch_steps = 8,
                                 .row_tiles = 2,
                                 .fetch_w = false,
                                 .fetch_y = false};

}  // namespace

constinit const LinearPanelKernels kLinearAmxEmulatedUnpacked =
    unpacked_table<Avx512, AmxTuning{}>();
constinit const LinearPanelKernels kLinearAmxEmulatedSmallUnpacked =
    unpacked_table<Avx512, kSmallBlocks>();
constinit const LinearFloatKernels kLinearAmxEmulatedFloats = {&kLinearAvx512F32, &kLinearAvx512F16,
                                                               &kAmxTiles<AmxTuning{}>};
constinit const LinearFloatKernels kLinearAmxEmulatedSmallFloats = {
    &kLinearAvx512F32, &kLinearAvx512F16, &kAmxTiles<kSmallBlocks>};

}  // namespace headrace
