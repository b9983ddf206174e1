#include "ops/linear/lora_slot.h"

#include <cstring>
#include <iterator>

#include "base/check.h"
#include "ops/linear/lora_layout.h"
#include "tensor/half.h"

namespace headrace {
namespace {

constexpr int64_t kLoraFactorAlign = 256;

int64_t factor_bytes(DType dtype, int64_t elements) {
  const int64_t bytes = elements * dtype_info(dtype).block_bytes;
  return (bytes + kLoraFactorAlign - 1) / kLoraFactorAlign * kLoraFactorAlign;
}

void store_element(DType dtype, std::byte* to, int64_t index, float value) {
  if (dtype == DType::kF32) {
    std::memcpy(to + 4 * index, &value, 4);
    return;
  }
  CHECK(dtype == DType::kF16 || dtype == DType::kBF16);
  const uint16_t half = dtype == DType::kF16 ? float_to_half(value) : float_to_bfloat16(value);
  std::memcpy(to + 2 * index, &half, 2);
}

}  // namespace

int64_t lora_a_bytes(DType dtype, int64_t ranks, int64_t columns) {
  return factor_bytes(dtype, lora_a_elements(ranks, columns));
}

int64_t lora_b_bytes(DType dtype, int64_t ranks, int64_t outputs) {
  return factor_bytes(dtype, lora_b_elements(ranks, outputs));
}

int32_t lora_rank_tiles(int64_t ranks) {
  return static_cast<int32_t>(lora_tiles(ranks, kLoraTileRanks));
}

void pack_lora_a(DType dtype, std::byte* a, int64_t rank, std::span<const float> row) {
  const int64_t columns = std::ssize(row);
  for (int64_t k = 0; k < columns; ++k) {
    store_element(dtype, a, lora_a_index(rank, k, columns), row[static_cast<size_t>(k)]);
  }
}

void pack_lora_b(DType dtype, std::byte* b, int64_t output, std::span<const float> row) {
  const int64_t tiles = lora_rank_tiles(std::ssize(row));
  for (int64_t r = 0; r < std::ssize(row); ++r) {
    store_element(dtype, b, lora_b_index(output, r, tiles), row[static_cast<size_t>(r)]);
  }
}

}  // namespace headrace
