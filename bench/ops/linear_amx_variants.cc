// Compiled with AMX's flags: include nothing that has inline functions shared with other files.
#include "linear_amx_variants.h"

#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/amx_tiles.inc"
#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

#include "ops/linear_cpu_float.inc"
#include "ops/linear_cpu_unpack.inc"

#include "ops/linear_cpu_amx.inc"
#include "ops/linear_cpu_amx_panels.inc"

// --- probes ---

constexpr PanelFormat kWhole{.part_columns = 32, .minimum = false};
constexpr PanelFormat kMinimum{.part_columns = 32, .minimum = true};
constexpr PanelFormat kHalves{.part_columns = 16, .minimum = false};
constexpr int kProbeRuns = 8;  // 256 columns: 8 KB of x, 6 KB of weights

struct ProbeData {
  alignas(64) QuantisedBlock x[kProbeRuns * kAmxRows];
  AmxChunk<AmxPanelTuning{.buffers = 2}> two;
  AmxChunk<AmxPanelTuning{.buffers = 4}> four;
  float sums[kAmxSums];
  alignas(64) unsigned char bf16[2][2][16 * kTileBytes];  // [x or w][which]
  alignas(64) float bf16_sums[2][2][kTileFloats];
  unsigned char beyond[1 << 20];  // of x, in the second-level cache
};

ProbeData& probe_data() {
  alignas(64) static thread_local ProbeData data;
  return data;
}

void ends_of_tiles(int64_t rounds) {  // products alone, K of 32
  const TileScope scope(32);
  for (int64_t i = 0; i < rounds; ++i) {
    dot_signed<0, 4, 6>();
    dot_signed<1, 5, 7>();
    dot_signed<2, 4, 6>();
    dot_signed<3, 5, 7>();
  }
}

// Tiles loaded, multiplied and stored, nothing scaled.
template <int kBuffers, PanelFormat kPanel>
void unscaled(int64_t rounds) {
  ProbeData& data = probe_data();
  const TileScope scope(kPanel.part_columns);
  const AmxTile tile{data.x, data.two.panels[0], kProbeRuns * panel_parts(kPanel)};
  for (int64_t i = 0; i < rounds; ++i) {
    for (int part = 0; part < tile.parts; part += kBuffers) {
      for_constants<0, kBuffers>([&]<int kTile>() __attribute__((always_inline)) {
        start_part<kPanel, kTile>(tile, part + kTile, data.four.dots[kTile], data.four.lows[kTile]);
      });
    }
  }
}

// Integer sums that are there already, scaled.
template <PanelFormat kPanel>
void scaled_only(int64_t rounds) {
  ProbeData& data = probe_data();
  const AmxTile tile{data.x, data.two.panels[0], kProbeRuns * panel_parts(kPanel)};
  Avx512::F32 acc[kAmxRows];
  for (auto& sum : acc) sum = Avx512::zero();
  for (int64_t i = 0; i < rounds; ++i) {
    for (int part = 0; part < tile.parts; part += 2) {
      for_constants<0, 2>([&]<int kTile>() __attribute__((always_inline)) {
        scale_part<Avx512, kPanel, kTile % panel_parts(kPanel)>(
            tile, part + kTile, data.two.dots[kTile], data.two.lows[kTile], acc);
      });
      __asm__ volatile("" : : : "memory");
    }
  }
  for (int r = 0; r < kAmxRows; ++r) Avx512::store(data.sums + r * kGroupLanes, acc[r]);
}

template <int kBuffers, PanelFormat kPanel>
void both(int64_t rounds) {
  ProbeData& data = probe_data();
  const TileScope scope(kPanel.part_columns);
  const auto run = [&](auto& chunk) {
    chunk.first = true;
    const AmxTile tile{data.x, chunk.panels[0], kProbeRuns * panel_parts(kPanel)};
    for (int64_t i = 0; i < rounds; ++i) {
      amx_tile<Avx512, kPanel, AmxPanelTuning{.buffers = kBuffers}>(tile, chunk, data.sums);
    }
  };
  if constexpr (kBuffers == 2) run(data.two);
  if constexpr (kBuffers == 4) run(data.four);
}

// Every block has wide rows.
void both_wide(int64_t rounds) {
  ProbeData& data = probe_data();
  for (int run = 0; run < kProbeRuns; ++run) data.x[run * kAmxRows].tile_wide = 0x0104;
  both<2, kWhole>(rounds);
  for (int run = 0; run < kProbeRuns; ++run) data.x[run * kAmxRows].tile_wide = 0;
}

// 512 columns of 2 x 2 tiles; `stride`: bytes from one call's tiles of x to the next one's.
template <int64_t kStride>
void bf16_stretch(int64_t rounds) {
  ProbeData& data = probe_data();
  const TileScope scope;
  constexpr int64_t kPlaces = kStride == 0 ? 1 : int64_t{sizeof data.beyond} / kStride;
  for (int64_t i = 0; i < rounds; ++i) {
    const unsigned char* x = kStride == 0 ? data.bf16[0][0] : data.beyond + i % kPlaces * kStride;
    const Stretch stretch{.x = {x, x + 16 * kTileBytes},
                          .w = {data.bf16[1][0], data.bf16[1][1]},
                          .sums = {{data.bf16_sums[0][0], data.bf16_sums[0][1]},
                                   {data.bf16_sums[1][0], data.bf16_sums[1][1]}},
                          .steps = 16,
                          .first = false,
                          .fetch = {}};
    multiply<2, 2>(stretch);
  }
}

constexpr int64_t kParts = kProbeRuns;  // products of 32 columns a round

template <AmxPanelTuning kTuning>
constexpr LinearPanelKernels kPanelsOf = amx_panel_table<Avx512, kTuning>();

}  // namespace

const AmxProbe kAmxProbes[] = {
    {"products of K 32, no memory", "int8", 4, ends_of_tiles},
    {"loaded, multiplied, stored, 2 buffers", "int8", kParts, unscaled<2, kWhole>},
    {"loaded, multiplied, stored, 4 buffers", "int8", kParts, unscaled<4, kWhole>},
    {"the same in parts of 16", "int8", kParts, unscaled<2, kHalves>},
    {"scaled alone", "int8", kParts, scaled_only<kWhole>},
    {"scaled alone, with minima", "int8", kParts, scaled_only<kMinimum>},
    {"all, 2 buffers", "int8", kParts, both<2, kWhole>},
    {"all, 4 buffers", "int8", kParts, both<4, kWhole>},
    {"all, every block wide", "int8", kParts, both_wide},
    {"all, with minima, 2 buffers", "int8", kParts, both<2, kMinimum>},
    {"all, with minima, 4 buffers", "int8", kParts, both<4, kMinimum>},
    {"all, in parts of 16, 2 buffers", "int8", kParts, both<2, kHalves>},
    {"all, in parts of 16, 4 buffers", "int8", kParts, both<4, kHalves>},
    {"2 x 2 tiles, a stretch of 512", "bf16", 16 * 4, bf16_stretch<0>},
    {"the same, x from the second-level cache", "bf16", 16 * 4, bf16_stretch<32768>},
};

// --- variants ---

const AmxPanelVariant kAmxPanelVariants[] = {
    {"default", kPanelsOf<AmxPanelTuning{}>},
    {"buffers 2", kPanelsOf<AmxPanelTuning{.buffers = 2}>},
    {"chunk 256", kPanelsOf<AmxPanelTuning{.chunk_runs = 8}>},
    {"chunk 256, groups 4", kPanelsOf<AmxPanelTuning{.chunk_runs = 8, .groups = 4}>},
    {"rows 128", kPanelsOf<AmxPanelTuning{.row_block = 128}>},
    {"rows 512", kPanelsOf<AmxPanelTuning{.row_block = 512}>},
    {"no fetch y", kPanelsOf<AmxPanelTuning{.fetch_y = false}>},
};

const AmxTileVariant kAmxTileVariants[] = {
    {"default", kAmxTiles<AmxTuning{}>},
    {"rows 128, groups 2, no fetch",
     kAmxTiles<AmxTuning{.row_tiles = 8, .groups = 2, .fetch_y = false, .fetch_w = false}>},
    {"no fetch", kAmxTiles<AmxTuning{.fetch_y = false, .fetch_w = false}>},
    {"no fetch y", kAmxTiles<AmxTuning{.fetch_y = false}>},
    {"no fetch w", kAmxTiles<AmxTuning{.fetch_w = false}>},
    {"rows 128", kAmxTiles<AmxTuning{.row_tiles = 8}>},
    {"rows 512", kAmxTiles<AmxTuning{.row_tiles = 32}>},
    {"groups 8", kAmxTiles<AmxTuning{.groups = 8}>},
    {"stretch 768", kAmxTiles<AmxTuning{.stretch_steps = 24}>},
};

const int kAmxProbeCount = sizeof kAmxProbes / sizeof kAmxProbes[0];
const int kAmxPanelVariantCount = sizeof kAmxPanelVariants / sizeof kAmxPanelVariants[0];
const int kAmxTileVariantCount = sizeof kAmxTileVariants / sizeof kAmxTileVariants[0];

}  // namespace headrace
