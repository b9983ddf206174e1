#include "ops/amx_emulation.h"

#include <immintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace headrace::emulated {
namespace {

struct Tile {
  int rows = 0, row_bytes = 0;  // 0 x 0: not configured
  uint8_t bytes[kTileRowsMax][kTileRowBytesMax] = {};

  template <class Element>
  Element get(int row, int index) const {
    Element value;
    std::memcpy(&value, bytes[row] + index * static_cast<int>(sizeof value), sizeof value);
    return value;
  }
  template <class Element>
  void set(int row, int index, Element value) {
    std::memcpy(bytes[row] + index * static_cast<int>(sizeof value), &value, sizeof value);
  }
};

struct Registers {
  bool configured = false;
  std::array<Tile, kTiles> tiles;
};

thread_local Registers registers;

Tile& tile_at(int index) {
  CHECK_MSG(registers.configured, "#UD: no tile configuration is loaded");
  CHECK_MSG(index >= 0 && index < kTiles, "#UD: there are eight tiles");
  Tile& tile = registers.tiles[static_cast<size_t>(index)];
  CHECK_MSG(tile.rows > 0, "#UD: the configuration leaves this tile out");
  return tile;
}

struct Operands {
  Tile& sum;
  const Tile& x;
  const Tile& w;
  int steps;    // dwords along K
  int columns;  // of sum
};

Operands operands(int sum, int x, int w) {
  CHECK_MSG(sum != x && sum != w && x != w, "#UD: operands are different tiles");
  const Operands of{tile_at(sum), tile_at(x), tile_at(w), tile_at(x).row_bytes / 4,
                    tile_at(sum).row_bytes / 4};
  CHECK_MSG(of.sum.row_bytes % 4 == 0 && of.x.row_bytes % 4 == 0 && of.w.row_bytes % 4 == 0,
            "#UD: rows are whole dwords");
  CHECK_MSG(of.sum.rows == of.x.rows, "#UD: as many rows of sums as of x");
  CHECK_MSG(of.w.rows == of.steps, "#UD: a row of w for each dword of x");
  CHECK_MSG(of.sum.row_bytes == of.w.row_bytes, "#UD: as many columns of sums as of w");
  return of;
}

template <class XByte>
void dot_bytes(int sum, int x, int w) {
  const Operands of = operands(sum, x, w);
  for (int m = 0; m < of.sum.rows; ++m) {
    for (int n = 0; n < of.columns; ++n) {
      uint32_t total = of.sum.get<uint32_t>(m, n);  // wraps, does not saturate
      for (int k = 0; k < of.steps * 4; ++k) {
        const int32_t product =
            int32_t{of.x.get<XByte>(m, k)} * of.w.get<int8_t>(k / 4, n * 4 + k % 4);
        total += static_cast<uint32_t>(product);
      }
      of.sum.set(m, n, total);
    }
  }
}

// Ties to even, denormals as zero, flush to zero, no exceptions, for the scope.
class TileRounding {
 public:
  TileRounding() : kept_(_mm_getcsr()) { _mm_setcsr(0x9fc0); }
  ~TileRounding() { _mm_setcsr(kept_); }
  TileRounding(const TileRounding&) = delete;
  TileRounding& operator=(const TileRounding&) = delete;

 private:
  unsigned kept_;
};

float widened(uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); }

// Not inlined: the compiler must not move arithmetic out of TileRounding.
[[gnu::noinline]] void dot_bf16_rows(const Operands& of) {
  for (int m = 0; m < of.sum.rows; ++m) {
    for (int n = 0; n < of.columns; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < of.steps; ++k) {
        even = std::fma(widened(of.x.get<uint16_t>(m, 2 * k)),
                        widened(of.w.get<uint16_t>(k, 2 * n)), even);
        odd = std::fma(widened(of.x.get<uint16_t>(m, 2 * k + 1)),
                       widened(of.w.get<uint16_t>(k, 2 * n + 1)), odd);
      }
      of.sum.set(m, n, of.sum.get<float>(m, n) + (even + odd));
    }
  }
}

}  // namespace

void load_config(const void* config) {
  uint8_t bytes[64];
  std::memcpy(bytes, config, sizeof bytes);
  registers = {};
  if (bytes[0] == 0) return;
  CHECK_MSG(bytes[0] == 1, "#GP: palette 1 is the only one");
  for (int i = 2; i < 64; ++i) {
    const bool of_a_tile = (i >= 16 && i < 32) || (i >= 48 && i < 56);
    CHECK_MSG(of_a_tile || bytes[i] == 0, "#GP: reserved bytes are zero");
  }
  for (int t = 0; t < kTiles; ++t) {
    const int row_bytes = bytes[16 + 2 * t] | bytes[17 + 2 * t] << 8, rows = bytes[48 + t];
    CHECK_MSG(rows <= kTileRowsMax && row_bytes <= kTileRowBytesMax, "#GP: a tile is too large");
    CHECK_MSG((rows == 0) == (row_bytes == 0), "#GP: rows without bytes, or bytes without rows");
    Tile& tile = registers.tiles[static_cast<size_t>(t)];
    tile.rows = rows;
    tile.row_bytes = row_bytes;
  }
  registers.configured = true;
}

void release() { registers = {}; }

void zero(int tile) { std::memset(tile_at(tile).bytes, 0, sizeof Tile::bytes); }

void load(int index, const void* at, int64_t stride) {
  Tile& tile = tile_at(index);
  std::memset(tile.bytes, 0, sizeof tile.bytes);
  for (int row = 0; row < tile.rows; ++row) {
    std::memcpy(tile.bytes[row], static_cast<const uint8_t*>(at) + row * stride,
                static_cast<size_t>(tile.row_bytes));
  }
}

void store(int index, void* at, int64_t stride) {
  const Tile& tile = tile_at(index);
  for (int row = 0; row < tile.rows; ++row) {
    std::memcpy(static_cast<uint8_t*>(at) + row * stride, tile.bytes[row],
                static_cast<size_t>(tile.row_bytes));
  }
}

void dot_signed(int sum, int x, int w) { dot_bytes<int8_t>(sum, x, w); }
void dot_unsigned_signed(int sum, int x, int w) { dot_bytes<uint8_t>(sum, x, w); }

void dot_bf16(int sum, int x, int w) {
  const Operands of = operands(sum, x, w);
  const TileRounding rounding;
  dot_bf16_rows(of);
}

}  // namespace headrace::emulated
