// Rows of BF16 as F16, which has fewer exponents: a row with a finite number beyond its range is
// made smaller, exactly but for what is lost below 2^-8 of its largest numbers' last bits, and the
// sums of its products larger again.
#pragma once

namespace headrace::gpu {

inline constexpr float kF16Most = 65504.0f;
inline constexpr float kF16Smaller = 0x1p-16f, kF16Larger = 0x1p16f;

// Infinities and NaN stay what they are.
__device__ __forceinline__ bool beyond_f16(float x) { return fabsf(x) > kF16Most && !isinf(x); }

}  // namespace headrace::gpu
