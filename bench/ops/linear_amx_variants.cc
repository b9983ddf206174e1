// Compiled with AMX's flags: include nothing that has inline functions shared with other files.
#include "linear_amx_variants.h"

#include <immintrin.h>
#include <sys/mman.h>

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

// --- probes ---

// Sums of 32 columns a step from zero, over some pairs of tiles of x and, inside, of groups of W.
constexpr int64_t kOperandBytes = 2 << 20;

struct Operands {
  alignas(64) float sums[kPairMax][kPairMax][kTileFloats];
  unsigned char* x;
  unsigned char* w;
};

// Pages of 2 MB where the system has them.
Operands& operands() {
  static thread_local Operands data = [] {
    constexpr size_t kBytes = 3 * kOperandBytes;
    void* memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto at =
        (reinterpret_cast<uintptr_t>(memory) + kOperandBytes - 1) / kOperandBytes * kOperandBytes;
    auto* x = reinterpret_cast<unsigned char*>(at);
    madvise(x, 2 * kOperandBytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < 2 * kOperandBytes; i += 64) x[i] = 0;
    return Operands{.sums = {}, .x = x, .w = x + kOperandBytes};
  }();
  return data;
}

template <Streams kStreams, int kSteps, int kXPairs, int kWPairs>
void tile_loop(int64_t rounds) {
  Operands& data = operands();
  const TileScope scope;
  constexpr int64_t kBytes = kSteps * kTileBytes;
  for (int64_t i = 0; i < rounds; ++i) {
    for (int64_t t = 0; t < 2 * kXPairs; t += 2) {
      for (int64_t g = 0; g < 2 * kWPairs; g += 2) {
        const Stretch stretch{
            .x = {data.x + t * kBytes, data.x + (t + 1) * kBytes},
            .w = {data.w + g * kBytes, data.w + (g + 1) * kBytes},
            .sums = {{data.sums[0][0], data.sums[0][1]}, {data.sums[1][0], data.sums[1][1]}},
            .steps = kSteps,
            .first = true,
            .fetch = {}};
        multiply<kStreams, 2, 2>(stretch);
      }
    }
  }
}

template <int64_t kBytes, bool kStream>
void tile_loads(int64_t rounds) {
  Operands& data = operands();
  const TileScope scope;
  for (int64_t i = 0; i < rounds; ++i) {
    for (int64_t at = 0; at < kBytes; at += 4 * kTileBytes) {
      load_operand<4, kStream>(data.x + at);
      load_operand<5, kStream>(data.x + at + kTileBytes);
      load_operand<6, kStream>(data.x + at + 2 * kTileBytes);
      load_operand<7, kStream>(data.x + at + 3 * kTileBytes);
    }
  }
}

template <PackedFormat kFormat>
void unpack_loop(int64_t rounds) {
  Operands& data = operands();
  for (int64_t i = 0; i < rounds; ++i) {
    unpack_tiles<Avx512, kFormat>(data.x, 256, 0, 8, data.w);
    __asm__ volatile("" : : : "memory");
  }
}

void bf16_products(int64_t rounds) {
  const TileScope scope;
  for (int64_t i = 0; i < rounds; ++i) {
    dot_bf16<0, 4, 6>();
    dot_bf16<1, 4, 7>();
    dot_bf16<2, 5, 6>();
    dot_bf16<3, 5, 7>();
  }
}

constexpr Streams kNone{}, kStreamX{.x = true, .w = false}, kStreamW{.x = false, .w = true},
    kStreamBoth{.x = true, .w = true};

}  // namespace

const AmxProbe kAmxProbes[] = {
    {"bf16 products alone", 4, bf16_products},
    {"tile loads, 16 KB (16 cycles: 1.0)", 16, tile_loads<16384, false>},
    {"tile loads, 32 KB", 32, tile_loads<32768, false>},
    {"tile loads, 256 KB", 256, tile_loads<262144, false>},
    {"tile loads, 256 KB, streamed", 256, tile_loads<262144, true>},
    {"tile loads, 1 MB", 1024, tile_loads<1048576, false>},
    {"2 x 2, 4 steps, 8 + 8 KB", 4 * 4, tile_loop<kNone, 4, 1, 1>},
    {"2 x 2, 8 steps, 16 + 16 KB", 8 * 4, tile_loop<kNone, 8, 1, 1>},
    {"2 x 2, 16 steps, 32 + 32 KB", 16 * 4, tile_loop<kNone, 16, 1, 1>},
    {"2 x 2, 9 steps, 18 + 8 x 18 KB", 9 * 4 * 8, tile_loop<kNone, 9, 1, 8>},
    {"2 x 2, 18 steps, 36 + 8 x 36 KB", 18 * 4 * 8, tile_loop<kNone, 18, 1, 8>},
    {"the same, w streamed", 18 * 4 * 8, tile_loop<kStreamW, 18, 1, 8>},
    {"the same, x streamed", 18 * 4 * 8, tile_loop<kStreamX, 18, 1, 8>},
    {"the same, both streamed", 18 * 4 * 8, tile_loop<kStreamBoth, 18, 1, 8>},
    {"2 x 2, 64 steps, 128 + 4 x 128 KB", 64 * 4 * 4, tile_loop<kNone, 64, 1, 4>},
    {"the same, both streamed", 64 * 4 * 4, tile_loop<kStreamBoth, 64, 1, 4>},
    {"unpacked Q8_0 (16 cycles a tile: 1.0)", 8, unpack_loop<kPackedQ8_0>},
    {"unpacked Q4_0", 8, unpack_loop<kPackedQ4_0>},
    {"unpacked Q4_1", 8, unpack_loop<kPackedQ4_1>},
    {"unpacked Q4_K", 8, unpack_loop<kPackedQ4_K>},
    {"unpacked Q6_K", 8, unpack_loop<kPackedQ6_K>},
};

// --- variants ---

const AmxTileVariant kAmxTileVariants[] = {
    {"default", kAmxTiles<AmxTuning{}>},
    {"no stream", kAmxTiles<AmxTuning{.stream = false}>},
    {"both streamed", kAmxTiles<AmxTuning{.near_steps = 0}>},
    {"groups 8", kAmxTiles<AmxTuning{.groups = 8}>},
    {"block 1024, groups 32", kAmxTiles<AmxTuning{.block_tiles = 1024, .groups = 32}>},
    {"stretch 32", kAmxTiles<AmxTuning{.stretch_steps = 32}>},
    {"x fetched always", kAmxTiles<AmxTuning{.far_tiles = 0}>},
    {"x not fetched", kAmxTiles<AmxTuning{.far_tiles = 1 << 30}>},
    {"no fetch w", kAmxTiles<AmxTuning{.fetch_w = false}>},
    {"no fetch y", kAmxTiles<AmxTuning{.fetch_y = false}>},
};

const AmxPanelVariant kAmxPanelVariants[] = {
    {"unpacked", unpacked_table<Avx512, AmxTuning{}>()},
    {"unpacked, no stream", unpacked_table<Avx512, AmxTuning{.stream = false}>()},
    {"unpacked, both streamed", unpacked_table<Avx512, AmxTuning{.near_steps = 0}>()},
    {"unpacked, groups 8", unpacked_table<Avx512, AmxTuning{.groups = 8}>()},
    {"unpacked, block 1024, groups 32",
     unpacked_table<Avx512, AmxTuning{.block_tiles = 1024, .groups = 32}>()},
    {"unpacked, stretch 32", unpacked_table<Avx512, AmxTuning{.stretch_steps = 32}>()},
    {"unpacked, x fetched always", unpacked_table<Avx512, AmxTuning{.far_tiles = 0}>()},
    {"unpacked, x not fetched", unpacked_table<Avx512, AmxTuning{.far_tiles = 1 << 30}>()},
    {"unpacked, no fetch w", unpacked_table<Avx512, AmxTuning{.fetch_w = false}>()},
    {"unpacked, no fetch y", unpacked_table<Avx512, AmxTuning{.fetch_y = false}>()},
};

const int kAmxPanelVariantCount = sizeof kAmxPanelVariants / sizeof kAmxPanelVariants[0];
const int kAmxProbeCount = sizeof kAmxProbes / sizeof kAmxProbes[0];
const int kAmxTileVariantCount = sizeof kAmxTileVariants / sizeof kAmxTileVariants[0];

}  // namespace headrace
