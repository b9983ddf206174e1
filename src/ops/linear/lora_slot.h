// What lora_linear reads on a GPU: adapters lie in slots of one size, so that a recorded step finds
// another adapter where it found the last, and a step says which rows have which slot's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace headrace {

inline constexpr int32_t kLoraTaskRows = 32;

// Rows of one slot's adapter, which share what is read of it.
struct LoraTask {
  int32_t slot = 0;
  int32_t count = 0;  // 0: nothing is to be done
  int32_t rows[kLoraTaskRows] = {};
};
// Tasks of so many rows that have at most so many slots.
constexpr int64_t lora_tasks_max(int64_t rows, int64_t slots) {
  return std::min(rows, rows / kLoraTaskRows + slots);
}

// A factor of a product, where it lies in every slot and what it adds to.
struct LoraPlace {
  int64_t a = 0, b = 0;  // bytes from the slot's front
  int32_t index = 0;     // of the slot's LoraScales
  int64_t columns = 0;   // rows of B
  int64_t first_column = 0;
};
// What a slot has of a factor.
struct LoraScale {
  float scale = 0;
  int32_t rank_tiles = 0;  // of 16 ranks; 0: the adapter leaves it alone
};

// Slots in device memory. They do not move while steps are recorded.
struct LoraSlotsView {
  const std::byte* memory = nullptr;  // [slots] of slot_bytes
  int64_t slot_bytes = 0;
  const LoraScale* scales = nullptr;  // [slots][factors of all products]
  int32_t factor_count = 0;
  DType dtype = DType::kBF16;  // that of activations
  int32_t rank_max = 0;
};

// Bytes of a factor in a slot: multiples of 256.
int64_t lora_a_bytes(DType dtype, int64_t ranks, int64_t columns);
int64_t lora_b_bytes(DType dtype, int64_t ranks, int64_t outputs);
int32_t lora_rank_tiles(int64_t ranks);
// Row `rank` of A [ranks, K], and row `output` of B [N, ranks] as a slot has them, at the front of
// what lora_a_bytes() and lora_b_bytes() count, which was zero. Values are rounded to the type.
void pack_lora_a(DType dtype, std::byte* a, int64_t rank, std::span<const float> row);
void pack_lora_b(DType dtype, std::byte* b, int64_t output, std::span<const float> row);

}  // namespace headrace
