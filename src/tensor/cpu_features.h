// What this CPU and its operating system allow, read once from CPUID and XCR0.
#pragma once

#include <string>

#include "base/status.h"

namespace headrace {

struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx_vnni = false;     // vpdpbusd on 256 bits without AVX-512
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // vpdpbusd, vpdpwssd on 512 bits
  bool avx512_bf16 = false;
  bool fast_bf16_dot = false;  // vdpbf16ps at the rate of an fma: AMD. On Intel's Xeons it takes
                               // four times as long, so that two fma in f32 are ahead (measured).
  bool avx512_fp16 = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;

  // The environment variable HEADRACE_CPU_ISA=baseline|avx2|avx_vnni|avx512|amx lowers what is
  // detected to that level; any other value is as if it were not set (check_cpu_isa() says so). AMX
  // counts only where Linux lets this process use its registers, which is asked for here: before
  // threads start.
  static CpuFeatures detect();
  std::string to_string() const;  // "avx2 avx512 vnni"
};

// What the environment variable HEADRACE_CPU_ISA asks for: an error where it names no level, or one
// that this CPU has not.
Status check_cpu_isa();

// Denormals as zero, flush to zero, for the calling thread: the same arithmetic and the same speed
// on every thread that computes. Pool workers do it for themselves.
void flush_denormals_on_this_thread();

}  // namespace headrace
