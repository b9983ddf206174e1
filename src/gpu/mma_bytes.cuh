// m16n8k32 of bytes, unsigned by signed, on tensor cores of sm_80 and later; as mma.cuh has those
// of 16 bits.
#pragma once

#include <cstdint>

namespace headrace::gpu {

// c += a b. With g = lane / 4 and q = lane % 4 a lane has, four bytes to a register, of A columns
// 4q to 4q + 3 of rows g and g + 8, then 16 + 4q to 16 + 4q + 3 of both; of B rows 4q and on, then
// 16 + 4q and on, of column g; of C columns 2q and 2q + 1 of row g, then of row g + 8.
__device__ __forceinline__ void multiply_add_bytes(int32_t (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace headrace::gpu
