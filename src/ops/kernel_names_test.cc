#include "ops/kernel_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace headrace::kernel_names_test {
namespace {

TEST(KernelNames, AreNamesOfOneKernelEach) {
  const std::vector<std::string_view> names = kernel_names();
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()).size(), names.size());
  for (const std::string_view name : {"linear/cpu/reference", "gated_linear/two_ops"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

}  // namespace
}  // namespace headrace::kernel_names_test
