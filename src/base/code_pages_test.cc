#include "base/code_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstdint>

namespace headrace::code_pages_test {
namespace {

int add_one(int value) { return value + 1; }

TEST(CodePages, WhatIsReleasedRunsOn) {
  int (*volatile function)(int) = add_one;
  EXPECT_EQ(function(1), 2);
  const size_t released = release_code_pages();
  EXPECT_EQ(function(2), 3);
  EXPECT_EQ(released % 4096, 0u);
  // The C library's code alone is more than a MiB (nothing is released under a debugger).
  if (released > 0) {
    EXPECT_GT(released, size_t{1} << 20);
  }
}

}  // namespace
}  // namespace headrace::code_pages_test
