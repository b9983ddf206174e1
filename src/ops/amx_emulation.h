// The tile instructions of AMX in plain C++, for tests on machines without them: what Intel's
// Software Developer's Manual says that each does, on registers of the calling thread. What would
// raise #UD or #GP is a failed CHECK.
#pragma once

#include <cstdint>

namespace headrace::emulated {

inline constexpr int kTiles = 8;
inline constexpr int kTileRowsMax = 16;
inline constexpr int kTileRowBytesMax = 64;

// 64 bytes in memory, as ldtilecfg reads them.
void load_config(const void* config);  // palette 0 releases, palette 1 zeroes all tiles
void release();

void zero(int tile);
// Rows `stride` bytes apart; rows and bytes that the configuration leaves out become zero.
void load(int tile, const void* at, int64_t stride);
void store(int tile, void* at, int64_t stride);

// sum[m][n] += sum over k of x[m][k] w[k][n], in dwords of four bytes or a pair of BF16.
void dot_signed(int sum, int x, int w);           // tdpbssd
void dot_unsigned_signed(int sum, int x, int w);  // tdpbusd
// tdpbf16ps: from zero on, the even and the odd columns each as a chain of fused multiply-adds,
// their sum added to the accumulator; ties to even, subnormals in and out are zero, MXCSR ignored.
void dot_bf16(int sum, int x, int w);

}  // namespace headrace::emulated
