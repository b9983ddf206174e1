#include "tensor/kernel_trace.h"

#include <gtest/gtest.h>

namespace headrace::kernel_trace_test {
namespace {

TEST(KernelTrace, FamiliesAreNamesWithoutTypes) {
  // void headrace::gpu::attention_decode<int, 128, 8>(int)
  EXPECT_EQ(kernel_family("_ZN8headrace3gpu16attention_decodeIiLi128ELi8EEEvi"),
            "attention_decode");
  // headrace::(anonymous namespace)::sample_row(float)
  EXPECT_EQ(kernel_family("_ZN8headrace12_GLOBAL__N_110sample_rowEf"), "sample_row");
  EXPECT_EQ(kernel_family("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT"),
            "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT");
}

TEST(KernelTrace, SaysWhyThereIsNone) {
  const auto trace = KernelTrace::start();
  if (trace.ok()) GTEST_SKIP() << "not run: CUPTI is there";
  EXPECT_FALSE(trace.status().message().empty());
}

}  // namespace
}  // namespace headrace::kernel_trace_test
