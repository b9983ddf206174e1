// Rows of BF16 as F16, which has fewer exponents: a row with a finite number beyond its range is
// made 2^16 smaller, and the sums of its products larger again. Of such a row numbers below 4 lose
// bits and those below 2^-9 are 0, beside one of 2^16 and more; from 2^32 on a number is infinite.
// Of other rows numbers below 2^-14 lose bits, and those below 2^-25 are 0.
#pragma once

namespace headrace::gpu {

inline constexpr float kF16Most = 65504.0f;
inline constexpr float kF16Smaller = 0x1p-16f, kF16Larger = 0x1p16f;

// Infinities and NaN stay what they are.
__device__ __forceinline__ bool beyond_f16(float x) { return fabsf(x) > kF16Most && !isinf(x); }

}  // namespace headrace::gpu
