// Blocks of a state of rules that replace what it has under a key (delta_rule, kimi_delta).
// Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Columns [column, column + width) of a state, [key_dim, width] dense: 16 KiB at 128 components of
// keys, which stay in the first cache between the pass that sums and the one that writes.
struct StateBlock {
  float* state;
  int64_t column;
  int64_t width;
};

void copy_block(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    store_up_to(to + i, load_up_to(from + i, count - i, 0.0f), count - i);
  }
}

// a' b, sixteen components at a time.
float dot(const float* a, const float* b, int64_t count) {
  Vec16 sum = zero();
  for (int64_t i = 0; i < count; i += 16) {
    sum = fma(load_up_to(a + i, count - i, 0.0f), load_up_to(b + i, count - i, 0.0f), sum);
  }
  return sum_of(sum);
}

// Calls advance.operator()<kVecs, kWhole>(): so many vectors a line; kWhole: all lanes are there.
template <class Advance>
void advance_by_width(const StateBlock& block, const Advance& advance) {
  if (block.width == 32) return advance.template operator()<2, true>();
  if (block.width == 16) return advance.template operator()<1, true>();
  if (block.width > 16) return advance.template operator()<2, false>();
  advance.template operator()<1, false>();
}

// All rows of a head over each of the blocks of `columns` columns that its state of key_dim times
// value_dim has: advance(block, row). States are cleared and saved where the head says.
template <class Head, class Advance>
void advance_blocks(const Head& a, int64_t key_dim, int64_t value_dim, int64_t columns,
                    const Advance& advance) {
  for (int64_t column = 0; column < value_dim; column += columns) {
    const int64_t left = value_dim - column, offset = column * key_dim;
    const StateBlock block{a.state + offset, column, left < columns ? left : columns};
    const int64_t count = key_dim * block.width;
    if (a.begins) {
      for (int64_t i = 0; i < count; i += 16) store_up_to(block.state + i, zero(), count - i);
    }
    int64_t saved = 0;
    for (int64_t t = 0; t < a.rows; ++t) {
      advance(block, t);
      while (saved < a.save_count && a.saves[saved].row == t) {
        copy_block(block.state, a.saves[saved++].state + offset, count);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
