#include "ops/linear_cpu_amx_emulated.h"

#include <immintrin.h>

#include "ops/amx_emulation.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/amx_tiles_emulated.inc"
#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

#include "ops/linear_cpu_float.inc"
#include "ops/linear_cpu_unpack.inc"

#include "ops/linear_cpu_amx.inc"
#include "ops/linear_cpu_amx_panels.inc"

constexpr AmxTuning kSmallBlocks{
    .row_tiles = 2, .groups = 2, .stretch_steps = 3, .fetch_y = false, .fetch_w = false};
constexpr AmxPanelTuning kSmallChunks{
    .buffers = 2, .chunk_runs = 8, .row_block = 32, .groups = 4, .fetch_y = false};

}  // namespace

constinit const LinearPanelKernels kLinearAmxEmulatedPanels =
    amx_panel_table<Avx512, AmxPanelTuning{}>();
constinit const LinearPanelKernels kLinearAmxEmulatedSmallPanels =
    amx_panel_table<Avx512, kSmallChunks>();
constinit const LinearFloatKernels kLinearAmxEmulatedFloats = {&kLinearAvx512F32, &kLinearAvx512F16,
                                                               &kAmxTiles<AmxTuning{}>};
constinit const LinearFloatKernels kLinearAmxEmulatedSmallFloats = {
    &kLinearAvx512F32, &kLinearAvx512F16, &kAmxTiles<kSmallBlocks>};

}  // namespace headrace
