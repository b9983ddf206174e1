// One thread of a warp, where all of it runs: what it does the compiler then knows to be one
// warp's, with addresses in uniform registers (a lane chosen by its number makes a loop of each
// copy).
#pragma once

#include <cstdint>

namespace headrace::gpu {

__device__ __forceinline__ bool elect_one() {
  uint32_t one;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n"
      "}\n"
      : "=r"(one));
  return one != 0;
}

}  // namespace headrace::gpu
