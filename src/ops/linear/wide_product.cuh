// Products (wgmma) whose A operand is a warpgroup's 64 rows of W, unpacked in registers, and whose
// B operand is rows of x in shared memory, as wide_rows.cuh lays them out.
#pragma once

#include "gpu/wgmma.cuh"
#include "ops/linear/wide_rows.cuh"

namespace headrace::gpu {

// Where a product finds 16 columns of all tiles: core matrices 128 bytes apart along k, tiles 256.
// The lower half of a descriptor, to which bytes / 16 may be added, and the upper.
__device__ __forceinline__ uint32_t x_operand(uint32_t address) {
  return (address & 0x3ffff) >> 4 | kCoreBytes >> 4 << 16;
}
constexpr uint32_t kTilesApart = 2 * kCoreBytes >> 4;

// sums += a b' of 64 rows of W and kN rows of x, 16 columns.
template <int kN>
struct WideProduct;

// clang-format off
#define HEADRACE_WIDE_PRODUCT(N, COUNT, SUMS, A, B, ...) \
  template <> \
  struct WideProduct<N> { \
    __device__ __forceinline__ static void add(float (&d)[COUNT], const uint32_t (&a)[4], uint32_t b) { \
      asm volatile("{\n.reg .b64 x;\nmov.b64 x, {" B "};\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" SUMS "}, " A ", x, 1, 1, 1, 0;\n}\n" \
        : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kTilesApart)); \
    } \
  };
#define HEADRACE_SUMS_8(at) "+f"(d[at]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3]), "+f"(d[at + 4]), "+f"(d[at + 5]), "+f"(d[at + 6]), "+f"(d[at + 7])
#define HEADRACE_SUMS_32(at) HEADRACE_SUMS_8(at), HEADRACE_SUMS_8(at + 8), HEADRACE_SUMS_8(at + 16), HEADRACE_SUMS_8(at + 24)
#define HEADRACE_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HEADRACE_NAMES_16 HEADRACE_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HEADRACE_NAMES_32 HEADRACE_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HEADRACE_NAMES_64 HEADRACE_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HEADRACE_NAMES_128 HEADRACE_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
HEADRACE_WIDE_PRODUCT(16, 8, HEADRACE_NAMES_8, "{%8, %9, %10, %11}", "%12, %13", HEADRACE_SUMS_8(0))
HEADRACE_WIDE_PRODUCT(32, 16, HEADRACE_NAMES_16, "{%16, %17, %18, %19}", "%20, %21", HEADRACE_SUMS_8(0), HEADRACE_SUMS_8(8))
HEADRACE_WIDE_PRODUCT(64, 32, HEADRACE_NAMES_32, "{%32, %33, %34, %35}", "%36, %37", HEADRACE_SUMS_8(0), HEADRACE_SUMS_8(8), HEADRACE_SUMS_8(16), HEADRACE_SUMS_8(24))
HEADRACE_WIDE_PRODUCT(128, 64, HEADRACE_NAMES_64, "{%64, %65, %66, %67}", "%68, %69", HEADRACE_SUMS_32(0), HEADRACE_SUMS_32(32))
HEADRACE_WIDE_PRODUCT(256, 128, HEADRACE_NAMES_128, "{%128, %129, %130, %131}", "%132, %133", HEADRACE_SUMS_32(0), HEADRACE_SUMS_32(32), HEADRACE_SUMS_32(64), HEADRACE_SUMS_32(96))
#undef HEADRACE_WIDE_PRODUCT
#undef HEADRACE_NAMES_128
#undef HEADRACE_NAMES_64
#undef HEADRACE_NAMES_32
#undef HEADRACE_NAMES_16
#undef HEADRACE_NAMES_8
#undef HEADRACE_SUMS_32
#undef HEADRACE_SUMS_8
// clang-format on

}  // namespace headrace::gpu
