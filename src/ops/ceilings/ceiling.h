// What this machine can do at most, measured by loops that do nothing else: read memory, multiply
// and add. Speeds of kernels are judged as shares of these, taken in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/cpu_features.h"
#include "tensor/device.h"

namespace headrace {

// Independent multiply-adds from registers to registers, without memory.
struct ArithmeticCeiling {
  std::string_view name;  // "avx512_vnni": as CpuFeatures spells it
  std::string_view type;  // "int8", "bf16", "f32": of what is multiplied
  bool (*supports)(const CpuFeatures&);
  // Runs `rounds` rounds on the calling thread; the result is only there to be used.
  double (*run)(int64_t rounds);
  int64_t operations_per_round;  // multiplications and additions
};
// Best first within a type.
std::span<const ArithmeticCeiling> arithmetic_ceilings();

// Reads all of `bytes` once with the widest loads of this machine; the result is only there to be
// used. REQUIRES: 64-byte aligned, a multiple of 1024 bytes
uint64_t read_all(const CpuFeatures& features, std::span<const std::byte> bytes);

// Reads all of `bytes` of device memory once, on the stream. Only in builds with CUDA. REQUIRES:
// 16-byte aligned, a multiple of 64 KiB
void read_all_cuda(Stream& stream, int32_t sm_count, std::span<const std::byte> bytes);

// cpu_<set>.cc: plain data in and out, no inline functions.
uint64_t read_all_avx512(const std::byte* data, int64_t bytes);
uint64_t read_all_avx2(const std::byte* data, int64_t bytes);
double multiply_add_avx512_f32(int64_t rounds);
double multiply_add_avx2_f32(int64_t rounds);
double multiply_add_avx_vnni(int64_t rounds);
double multiply_add_avx512_vnni(int64_t rounds);
double multiply_add_avx512_bf16(int64_t rounds);
double multiply_add_amx_int8(int64_t rounds);
double multiply_add_amx_bf16(int64_t rounds);
inline constexpr int64_t kCeilingAccumulators = 16;  // covers latency 4 x 2 units, and more

}  // namespace headrace
