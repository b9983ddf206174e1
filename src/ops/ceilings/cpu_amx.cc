#include <immintrin.h>

#include "ops/ceilings/ceiling.h"

namespace headrace {
namespace {

#include "ops/amx_tiles.inc"

void zero_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}

double first_sum() {
  alignas(64) int32_t sums[16 * 16];
  __asm__ volatile("" : : : "memory");
  _tile_stored(0, sums, 64);
  __asm__ volatile("" : : : "memory");
  return sums[0];
}

}  // namespace

// The instructions are volatile: every round is kept.
double multiply_add_amx_int8(int64_t rounds) {
  const TileScope scope;
  zero_tiles();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return first_sum();
}

double multiply_add_amx_bf16(int64_t rounds) {
  const TileScope scope;
  zero_tiles();
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return first_sum();
}

}  // namespace headrace
