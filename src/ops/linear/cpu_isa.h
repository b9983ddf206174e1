// Between linear's driver and its instruction-set files: plain data and function pointers only. The
// instruction-set files are compiled with flags of their own, so this header has no inline code
// that the linker could pick for a machine without those instructions.
#pragma once

#include <stdint.h>

namespace headrace {

// 32 columns of a row of x: q = round(x / scale), kept as the instruction set's kernels read it. A
// narrow block has |q| <= 127, a wide one |q| <= 32512 (cpu_quantise_rows.inc says which is which).
// What one pass over narrow blocks reads is the first cache line.
//
// Planar bytes (VNNI, AVX2): `first` are the high bytes, `second` the low ones: a narrow block is q
// = high and low = 0, a wide one q = 256 high + low. Paired words (multiply-add of words): for each
// 4 columns c the int16 q[c], q[c+2], q[c+1], q[c+3]; columns 0 to 15 in `first`.
struct QuantisedBlock {
  signed char first[32];
  float scale;         // of q; NaN when a column is NaN or infinite
  float scaled_sum;    // scale * sum(q), the factor of a weight's minimum
  int32_t zero_8;      // -8 sum(first): what a weight stored as q + 8 has too much. Words: of q
  int32_t tile_wide;   // of the first row of a staged tile: bit r: row r is wide here
  int32_t zero_128;    // -128 sum(first)
  int32_t zero_32[2];  // -32 sum(first) of each half
  float wide_scale;    // of 256 first + second: scale, or scale / 256 of a narrow block
  signed char second[32];
  float scaled_halves[2];  // scale * sum(q) of each half
  int32_t low_sum[2];      // sum(second) of each half; planar bytes only
  int32_t unused[4];
};
static_assert(sizeof(struct QuantisedBlock) == 128);

// A run of row groups of one segment against some rows of x. Rows of x are staged in tiles of
// `tile_rows` (the last tile may be shorter): for block types a tile of R rows is [K/32][R] blocks,
// for float types what their kernel stages.
struct LinearRange {
  const unsigned char* weight;  // first group
  int64_t group_count;
  int64_t group_bytes;
  int64_t k;
  const void* x;  // first tile
  int64_t row_count;
  float* y;              // first row of x, first row of the first group
  int64_t y_stride;      // floats
  const float* bias;     // from the first group on, or null
  int64_t column_count;  // columns of y from the first group on: the last group may be partial
  int32_t accumulate;    // y += instead of y =
};

typedef void (*LinearRangeKernel)(const LinearRange* range);

// Float weights of one type (cpu_float.inc). x is staged in tiles of `tile_rows` rows: a
// tile of R rows of K columns, padded to `column_unit`, is R * K values of `value_bytes`.
struct LinearFloatKernel {
  int32_t tile_rows;
  int32_t group_multiple;  // groups that the tiles take at once: what threads' shares should be
  int32_t row_unit;        // rows are padded to a multiple of it
  int32_t column_unit;
  int32_t value_bytes;
  // Writes a tile of `rows` <= tile_rows rows of x, `stride` floats apart.
  void (*stage)(const float* x, int64_t stride, int64_t rows, int64_t k, void* out);
  LinearRangeKernel range;
};

struct LinearFloatKernels {
  const LinearFloatKernel* f32;
  const LinearFloatKernel* f16;
  const LinearFloatKernel* bf16;
};

// Kernels of many rows, which unpack weights to memory (cpu_unpack.inc).
struct LinearPanelKernels {
  int32_t tile_rows;
  int32_t row_block;                // rows of x that unpacked weights serve; whole tiles
  int32_t rows_from;                // of x from which unpacking to memory pays
  int32_t groups;                   // that tiles take at once: threads' shares are multiples of it
  int32_t share_rows;               // of a thread, from which it has rows of its own: fewer would
                                    // have weights unpacked more often
  const LinearRangeKernel* blocks;  // by DType, from the first block type on
  const LinearFloatKernel* floats;  // what x is staged as; null: QuantisedBlock
};

struct LinearCpuIsa {
  int32_t tile_rows;
  // Writes row `row` of a staged tile of `stride` rows, its rows in ascending order. A block is
  // wide if its largest magnitude is over `wide_from` times the root mean square of the row's
  // largest magnitudes: 0 makes all wide.
  void (*quantise_row)(const float* x, int64_t k, float wide_from, QuantisedBlock* tile,
                       int64_t row, int64_t stride);
  const LinearRangeKernel* blocks;   // by DType, from the first block type on
  const LinearPanelKernels* panels;  // null: none
};

extern const LinearPanelKernels kLinearAvx512VnniPanels;
extern const LinearPanelKernels kLinearAmxUnpacked;
extern const LinearCpuIsa kLinearBaseline;
extern const LinearCpuIsa kLinearAvx2;
extern const LinearCpuIsa kLinearAvxVnni;
extern const LinearCpuIsa kLinearAvx512;
extern const LinearCpuIsa kLinearAvx512Vnni;
extern const LinearCpuIsa kLinearAmxBf16;
extern const LinearFloatKernel kLinearAvx512F32;
extern const LinearFloatKernel kLinearAvx512F16;
extern const LinearFloatKernels kLinearBaselineFloats;
extern const LinearFloatKernels kLinearAvx2Floats;
extern const LinearFloatKernels kLinearAvx512Floats;
extern const LinearFloatKernels kLinearAvx512Bf16Floats;
extern const LinearFloatKernels kLinearAmxFloats;

}  // namespace headrace
