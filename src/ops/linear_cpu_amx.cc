// linear with AMX: tdpbf16ps of 16 rows of x with 16 rows of W, 32 columns a step.
//
// A step has its own order (linear.h): the even and the odd columns of the 32 in two chains of
// fused multiply-adds from zero, their sum added to the accumulator. It is the same for one row and
// for many, since a missing row of a tile is a row of zeros. Compiled with those flags: include
// nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/amx_tiles.inc"
#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

#include "ops/linear_cpu_float.inc"

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileColumns = 32;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileFloats = 256;
constexpr int64_t kRowTiles = 8;       // of a block of rows that passes over a stretch of weights
constexpr int64_t kStretchSteps = 16;  // 512 columns of two groups are 32 KB
// What a single tile of x fetches ahead: it takes groups one by one, so that the weights are one
// stream, and the time of 16 steps (about 0.3 us) covers the way to memory.
constexpr int64_t kAheadBytes = 16384;

// The first `count` of 16 floats, zeros behind them.
__m512 load_some(const float* x, int64_t count) {
  if (count >= 16) return _mm512_loadu_ps(x);
  const int bits = count <= 0 ? 0 : (1 << count) - 1;
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(bits), x);
}

// Out: [k / 32][16 rows][32] BF16, rows and columns that x does not have are zero.
void stage_tile(const float* x, int64_t stride, int64_t rows, int64_t k, void* out) {
  auto* to = static_cast<unsigned char*>(out);
  for (int64_t c = 0; c < k; c += kTileColumns) {
    for (int64_t r = 0; r < kTileRows; ++r, to += 64) {
      const int64_t columns = r < rows ? k - c : 0;
      const float* at = x + (r < rows ? r * stride + c : 0);
      _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(load_some(at + 16, columns - 16),
                                                          load_some(at, columns)));
    }
  }
}

// What a call multiplies: tiles of x and of W side by side along K, kTileBytes a step each.
struct Stretch {
  const unsigned char* x[2];
  const unsigned char* w[2];
  float* sums[2][2];  // [tile of x][group]: [16][16]
  int64_t steps;
  bool first;  // sums start from zero
};

template <int kTile>
void load_sums(const Stretch& stretch, const float* sums) {
  if (stretch.first) {
    zero_tile<kTile>();
  } else {
    load_tile<kTile>(sums);
  }
}

// The sums of kX tiles of x against kW groups go on by `steps`.
template <int kX, int kW>
[[gnu::noinline]] void multiply(const Stretch& stretch) {
  load_sums<0>(stretch, stretch.sums[0][0]);
  if constexpr (kW > 1) load_sums<1>(stretch, stretch.sums[0][1]);
  if constexpr (kX > 1) load_sums<2>(stretch, stretch.sums[1][0]);
  if constexpr (kX > 1 && kW > 1) load_sums<3>(stretch, stretch.sums[1][1]);
  for (int64_t at = 0; at < stretch.steps * kTileBytes; at += kTileBytes) {
    if constexpr (kX == 1 && kW == 1) {  // most likely the only tile: weights come from memory
      for (int line = 0; line < kTileBytes; line += 64) {
        __builtin_prefetch(stretch.w[0] + at + kAheadBytes + line);
      }
    }
    load_tile<4>(stretch.x[0] + at);
    load_tile<6>(stretch.w[0] + at);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kW > 1) {
      load_tile<7>(stretch.w[1] + at);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kX > 1) {
      load_tile<5>(stretch.x[1] + at);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kX > 1 && kW > 1) _tile_dpbf16ps(3, 5, 7);
  }
  store_tile<0>(stretch.sums[0][0]);
  if constexpr (kW > 1) store_tile<1>(stretch.sums[0][1]);
  if constexpr (kX > 1) store_tile<2>(stretch.sums[1][0]);
  if constexpr (kX > 1 && kW > 1) store_tile<3>(stretch.sums[1][1]);
}

void multiply_some(const Stretch& stretch, int64_t x_tiles, int64_t groups) {
  if (x_tiles > 1) return groups > 1 ? multiply<2, 2>(stretch) : multiply<2, 1>(stretch);
  groups > 1 ? multiply<1, 2>(stretch) : multiply<1, 1>(stretch);
}

// Groups [first, first + groups), at most 2, against row tiles [tile, tile + tiles).
void multiply_block(const LinearRange& range, int64_t first, int64_t groups, int64_t tile,
                    int64_t tiles) {
  const int64_t steps = (range.k + kTileColumns - 1) / kTileColumns;
  const auto* x = static_cast<const unsigned char*>(range.x) + tile * steps * kTileBytes;
  const unsigned char* w = range.weight + first * range.group_bytes;
  alignas(64) float sums[kRowTiles][2][kTileFloats];
  const int64_t whole = tiles <= 2 || steps * 3 <= kStretchSteps * 4 ? steps : kStretchSteps;
  for (int64_t s = 0; s < steps; s += whole) {
    const int64_t now = steps - s < whole ? steps - s : whole;
    for (int64_t t = 0; t < tiles; t += 2) {
      const Stretch stretch{
          .x = {x + (t * steps + s) * kTileBytes, x + ((t + 1) * steps + s) * kTileBytes},
          .w = {w + s * kTileBytes, w + range.group_bytes + s * kTileBytes},
          .sums = {{sums[t][0], sums[t][1]}, {sums[t | 1][0], sums[t | 1][1]}},
          .steps = now,
          .first = s == 0};
      multiply_some(stretch, tiles - t, groups);
    }
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = (tile + t) * kTileRows;
    const int64_t rows = range.row_count - row < kTileRows ? range.row_count - row : kTileRows;
    for (int64_t g = 0; g < groups; ++g) {
      finish_sums<Avx512>(range, row, rows, first + g, 1, sums[t][g]);
    }
  }
}

void multiply_range(const LinearRange* range) {
  const TileScope scope;
  const int64_t tiles = (range->row_count + kTileRows - 1) / kTileRows;
  for (int64_t tile = 0; tile < tiles; tile += kRowTiles) {
    const int64_t now = tiles - tile < kRowTiles ? tiles - tile : kRowTiles;
    const int64_t at_once = tiles == 1 ? 1 : 2;
    for (int64_t g = 0; g < range->group_count; g += at_once) {
      const int64_t left = range->group_count - g;
      multiply_block(*range, g, left < at_once ? left : at_once, tile, now);
    }
  }
}

constexpr LinearFloatKernel kTiles = {.tile_rows = kTileRows,
                                      .group_multiple = 2,
                                      .row_unit = kTileRows,
                                      .column_unit = kTileColumns,
                                      .value_bytes = 2,
                                      .stage = stage_tile,
                                      .range = multiply_range};

}  // namespace

constinit const LinearFloatKernels kLinearAmxFloats = {&kLinearAvx512F32, &kLinearAvx512F16,
                                                       &kTiles};

}  // namespace headrace
