#include "tensor/cpu_features.h"

#include <cpuid.h>
#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace headrace {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_max(0, nullptr) >= leaf) __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

constexpr bool bit(uint32_t word, int index) { return (word >> index) & 1; }

uint64_t xcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

void lower_to(CpuFeatures& features, std::string_view level) {
  if (level == "baseline") features = CpuFeatures{};
  if (level == "avx2") features = CpuFeatures{.avx2 = features.avx2};
  if (level == "avx512") features.amx_int8 = features.amx_bf16 = false;
}

}  // namespace

CpuFeatures CpuFeatures::detect() {
  CpuFeatures features;
  const Registers one = cpuid(1, 0);
  if (!bit(one.ecx, 27)) return features;  // no OSXSAVE: the system saves no wide registers
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  const uint64_t saved = xcr0();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = (saved & 0xe6) == 0xe6;
  const bool tiles = (saved & 0x60000) == 0x60000;
  features.avx2 = ymm && bit(seven.ebx, 5) && bit(one.ecx, 12) && bit(one.ecx, 29);
  features.avx512 = features.avx2 && zmm && bit(seven.ebx, 16) && bit(seven.ebx, 17) &&
                    bit(seven.ebx, 30) && bit(seven.ebx, 31);
  features.avx512_vnni = features.avx512 && bit(seven.ecx, 11);
  features.avx512_bf16 = features.avx512 && bit(seven_one.eax, 5);
  features.avx512_fp16 = features.avx512 && bit(seven.edx, 23);
  features.amx_int8 = features.avx512 && tiles && bit(seven.edx, 25);
  features.amx_bf16 = features.avx512 && tiles && bit(seven.edx, 22);
  if (const char* level = std::getenv("HEADRACE_CPU")) lower_to(features, level);
  return features;
}

void flush_denormals_on_this_thread() { _mm_setcsr(_mm_getcsr() | 0x8040); }

std::string CpuFeatures::to_string() const {
  std::string out;
  const auto add = [&](bool has, std::string_view name) {
    if (has) out += (out.empty() ? "" : " ") + std::string(name);
  };
  add(avx2, "avx2");
  add(avx512, "avx512");
  add(avx512_vnni, "avx512_vnni");
  add(avx512_bf16, "avx512_bf16");
  add(avx512_fp16, "avx512_fp16");
  add(amx_int8, "amx_int8");
  add(amx_bf16, "amx_bf16");
  return out.empty() ? "baseline" : out;
}

}  // namespace headrace
