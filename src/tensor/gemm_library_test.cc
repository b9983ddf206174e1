#include "tensor/gemm_library.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace::gemm_library_test {
namespace {

TEST(GemmRowClass, IsExactForDecodesAndFewForPrompts) {
  for (int64_t m = 1; m <= 64; ++m) EXPECT_EQ(gemm_row_class(m), m);
  std::set<int64_t> classes;
  int64_t before = 0;
  for (int64_t m = 1; m <= 8192; ++m) {
    const int64_t row_class = gemm_row_class(m);
    EXPECT_GE(row_class, m);
    EXPECT_LE(row_class, m + m / 7 + 1);
    EXPECT_GE(row_class, before);
    EXPECT_EQ(gemm_row_class(row_class), row_class);
    before = row_class;
    classes.insert(row_class);
  }
  EXPECT_LE(classes.size(), 180u);
}

TEST(GemmLibrary, TheCpuHasNone) {
  const auto device = create_cpu_device(1);
  EXPECT_EQ(device->gemm_library().status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace headrace::gemm_library_test
