#include "tensor/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace headrace::cpu_features_test {
namespace {

class CpuIsa : public testing::Test {
 protected:
  CpuIsa() : all_(without()) {}
  ~CpuIsa() override { ::unsetenv("HEADRACE_CPU_ISA"); }

  static CpuFeatures without() {
    ::unsetenv("HEADRACE_CPU_ISA");
    return CpuFeatures::detect();
  }
  static void set(const char* level) { ::setenv("HEADRACE_CPU_ISA", level, 1); }

  const CpuFeatures all_;
};

TEST_F(CpuIsa, LowersWhatIsDetected) {
  set("baseline");
  EXPECT_EQ(CpuFeatures::detect().to_string(), "baseline");
  EXPECT_TRUE(check_cpu_isa().ok());
  set("avx2");
  EXPECT_EQ(CpuFeatures::detect().avx2, all_.avx2);
  EXPECT_FALSE(CpuFeatures::detect().avx512 || CpuFeatures::detect().avx_vnni);
  set("avx_vnni");
  EXPECT_EQ(CpuFeatures::detect().avx_vnni, all_.avx_vnni);
  EXPECT_FALSE(CpuFeatures::detect().avx512);
  set("avx512");
  EXPECT_EQ(CpuFeatures::detect().avx512_vnni, all_.avx512_vnni);
  EXPECT_FALSE(CpuFeatures::detect().amx_int8 || CpuFeatures::detect().amx_bf16);
  set("amx");
  EXPECT_EQ(CpuFeatures::detect().to_string(), all_.to_string());
}

TEST_F(CpuIsa, RefusesALevelThatIsNoneOrNotHere) {
  set("avx1024");
  EXPECT_EQ(check_cpu_isa().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(check_cpu_isa().message().find("avx1024"), std::string::npos);
  set("amx");
  EXPECT_EQ(check_cpu_isa().ok(), all_.amx_int8 && all_.amx_bf16);
}

}  // namespace
}  // namespace headrace::cpu_features_test
