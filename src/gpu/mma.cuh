// Matrix products of a warp, and loads for data that is used once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace headrace::gpu {

// Registers of one lane. Lane l is (g, t) = (l / 4, l % 4); an element is 16 bits, a register two.
struct MmaA {  // 16 x 16: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
  uint32_t r0, r1, r2, r3;
};
struct MmaB {  // 16 x 8: (2t, g), (2t + 8, g)
  uint32_t r0, r1;
};

// c += a b;  c[4]: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1) in f32.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const MmaA& a, const MmaB& b);

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&c)[4], const MmaA& a,
                                                            const MmaB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r0), "r"(a.r1), "r"(a.r2), "r"(a.r3), "r"(b.r0), "r"(b.r1));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&c)[4], const MmaA& a, const MmaB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r0), "r"(a.r1), "r"(a.r2), "r"(a.r3), "r"(b.r0), "r"(b.r1));
}

// 16 bytes that nothing writes during the kernel and no other block reads: L1 is left alone.
// REQUIRES: `from` on 16 bytes
__device__ __forceinline__ uint4 load_streamed(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

}  // namespace headrace::gpu
