#include "ops/ceilings/ceiling.h"

#include "base/check.h"

namespace headrace {
namespace {

uint64_t read_all_plain(std::span<const std::byte> bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size() / 8; ++i) sum += words[i];
  return sum;
}

// Two operations (multiply, add) for each of `lanes` products an instruction.
constexpr int64_t operations(int64_t products) { return 2 * products * kCeilingAccumulators; }

// Four tiles of 16 x 16 sums in turn.
constexpr int64_t tile_operations(int64_t columns) { return 4 * 2 * 16 * 16 * columns; }

constexpr ArithmeticCeiling kCeilings[] = {
    {"amx_int8", "int8", [](const CpuFeatures& cpu) { return cpu.amx_int8; }, multiply_add_amx_int8,
     tile_operations(64)},
    {"amx_bf16", "bf16", [](const CpuFeatures& cpu) { return cpu.amx_bf16; }, multiply_add_amx_bf16,
     tile_operations(32)},
    {"avx512_vnni", "int8", [](const CpuFeatures& cpu) { return cpu.avx512_vnni; },
     multiply_add_avx512_vnni, operations(64)},
    {"avx512_bf16", "bf16", [](const CpuFeatures& cpu) { return cpu.avx512_bf16; },
     multiply_add_avx512_bf16, operations(32)},
    {"avx512", "f32", [](const CpuFeatures& cpu) { return cpu.avx512; }, multiply_add_avx512_f32,
     operations(16)},
    {"avx_vnni", "int8", [](const CpuFeatures& cpu) { return cpu.avx_vnni; }, multiply_add_avx_vnni,
     operations(32)},
    {"avx2", "f32", [](const CpuFeatures& cpu) { return cpu.avx2; }, multiply_add_avx2_f32,
     operations(8)},
};

}  // namespace

std::span<const ArithmeticCeiling> arithmetic_ceilings() { return kCeilings; }

uint64_t read_all(const CpuFeatures& features, std::span<const std::byte> bytes) {
  CHECK(bytes.size() % 1024 == 0);
  const auto size = static_cast<int64_t>(bytes.size());
  if (features.avx512) return read_all_avx512(bytes.data(), size);
  if (features.avx2) return read_all_avx2(bytes.data(), size);
  return read_all_plain(bytes);
}

}  // namespace headrace
