#include "tensor/cpu_features.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

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

bool made_by_amd() {
  const Registers vendor = cpuid(0, 0);  // "AuthenticAMD"
  return vendor.ebx == 0x68747541 && vendor.edx == 0x69746e65 && vendor.ecx == 0x444d4163;
}

uint64_t xcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Linux lets a process use the tile registers once it has asked; threads of the process share the
// permission.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct Level {
  std::string_view name;
  bool (*has)(const CpuFeatures&);
  void (*lower)(CpuFeatures&);
};
constexpr std::array kLevels = {
    Level{"baseline", [](const CpuFeatures&) { return true; },
          [](CpuFeatures& cpu) { cpu = CpuFeatures{}; }},
    Level{"avx2", [](const CpuFeatures& cpu) { return cpu.avx2; },
          [](CpuFeatures& cpu) { cpu = CpuFeatures{.avx2 = cpu.avx2}; }},
    Level{"avx_vnni", [](const CpuFeatures& cpu) { return cpu.avx_vnni; },
          [](CpuFeatures& cpu) { cpu = CpuFeatures{.avx2 = cpu.avx2, .avx_vnni = cpu.avx_vnni}; }},
    Level{"avx512", [](const CpuFeatures& cpu) { return cpu.avx512; },
          [](CpuFeatures& cpu) { cpu.amx_int8 = cpu.amx_bf16 = false; }},
    Level{"amx", [](const CpuFeatures& cpu) { return cpu.amx_int8 && cpu.amx_bf16; },
          [](CpuFeatures&) {}},
};

const char* wanted_level() { return std::getenv("HEADRACE_CPU_ISA"); }

const Level* find_level(std::string_view name) {
  const auto* level = std::ranges::find(kLevels, name, &Level::name);
  return level == kLevels.end() ? nullptr : level;
}

CpuFeatures detect_all() {
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
  features.avx_vnni = features.avx2 && bit(seven_one.eax, 4);
  features.avx512 = features.avx2 && zmm && bit(seven.ebx, 16) && bit(seven.ebx, 17) &&
                    bit(seven.ebx, 30) && bit(seven.ebx, 31);
  features.avx512_vnni = features.avx512 && bit(seven.ecx, 11);
  features.avx512_bf16 = features.avx512 && bit(seven_one.eax, 5);
  features.fast_bf16_dot = features.avx512_bf16 && made_by_amd();
  features.avx512_fp16 = features.avx512 && bit(seven.edx, 23);
  const bool amx = features.avx512 && tiles && bit(seven.edx, 24) && ask_for_tiles();
  features.amx_int8 = amx && bit(seven.edx, 25);
  features.amx_bf16 = amx && bit(seven.edx, 22);
  return features;
}

}  // namespace

CpuFeatures CpuFeatures::detect() {
  CpuFeatures features = detect_all();
  const char* wanted = wanted_level();
  const Level* level = wanted == nullptr ? nullptr : find_level(wanted);
  if (level != nullptr) level->lower(features);
  return features;
}

Status check_cpu_isa() {
  const char* wanted = wanted_level();
  if (wanted == nullptr) return ok_status();
  const Level* level = find_level(wanted);
  if (level == nullptr) {
    return invalid_argument(fmt::format(
        "HEADRACE_CPU_ISA={}: levels are baseline, avx2, avx_vnni, avx512 and amx; unset "
        "it for all that this CPU has",
        wanted));
  }
  const CpuFeatures features = detect_all();
  if (level->has(features)) return ok_status();
  return unsupported(
      fmt::format("HEADRACE_CPU_ISA={}: this CPU has {}; unset it", wanted, features.to_string()));
}

void flush_denormals_on_this_thread() { _mm_setcsr(_mm_getcsr() | 0x8040); }

std::string CpuFeatures::to_string() const {
  std::string out;
  const auto add = [&](bool has, std::string_view name) {
    if (has) out += (out.empty() ? "" : " ") + std::string(name);
  };
  add(avx2, "avx2");
  add(avx_vnni, "avx_vnni");
  add(avx512, "avx512");
  add(avx512_vnni, "avx512_vnni");
  add(avx512_bf16, "avx512_bf16");
  add(avx512_fp16, "avx512_fp16");
  add(amx_int8, "amx_int8");
  add(amx_bf16, "amx_bf16");
  return out.empty() ? "baseline" : out;
}

}  // namespace headrace
