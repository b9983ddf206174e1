// Many rows of one sequence against all keys that they see, products in BF16: what attention hands
// to the kernels with BF16 instructions for prompts. Plain data, no inline functions.
#pragma once

#include "ops/attention/split.h"

namespace headrace {

// A panel shares what it converts: keys and values of a split become BF16 once for all its rows.
inline constexpr int32_t kPanelRowsMax = 256;
inline constexpr int32_t kPanelDimMax = 256;
inline constexpr int32_t kPanelTileRows = 32;  // that the products take at once

// Rows of one sequence that share a key head: `queries` consecutive positions x `group` heads, row
// r being head r % group of position r / group.
struct AttentionPanel {
  int32_t row_first, row_count;  // of those rows; row_count <= kPanelRowsMax
  int32_t group;
  const float* q;  // of position 0: [group][head_dim], the next position q_stride floats on
  int64_t q_stride;
  float* out;  // as q
  int64_t out_stride;
  int32_t key_last;       // position 0 sees keys [max(0, key_last - window), key_last)
  int32_t window;         // 0 = none
  const float* sinks;     // [group] or null: logits without a value
  const std::byte* keys;  // as in AttentionTile
  const std::byte* values;
  int64_t block_stride;  // bytes
  const int32_t* block_table;
  int32_t head_dim;  // of keys and values: a multiple of 16, at most kPanelDimMax
  KvFormat format;   // of both; not kF32
  float scale;       // > 0
  float soft_cap;    // 0 = none
};

using AttendPanel = void (*)(const AttentionPanel& panel);

void attend_panel_amx(const AttentionPanel& panel);
void attend_panel_amx_emulated(const AttentionPanel& panel);  // for tests: emulated tiles
void attend_panel_avx512_bf16(const AttentionPanel& panel);

}  // namespace headrace
