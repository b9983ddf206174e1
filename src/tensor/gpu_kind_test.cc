#include "tensor/gpu_kind.h"

#include <gtest/gtest.h>

namespace headrace::gpu_kind_test {
namespace {

TEST(GpuKind, HopperIsTaken) { EXPECT_TRUE(check_gpu_kind(0, "NVIDIA H200", 90).ok()); }

// Older ones and later ones: code for 9.0a runs on neither.
TEST(GpuKind, OthersAreRefusedByName) {
  struct Gpu {
    const char* name;
    int32_t compute_capability;
    const char* said;
  };
  for (const Gpu& gpu :
       {Gpu{"NVIDIA A100-SXM4-80GB", 80, "8.0"}, Gpu{"NVIDIA L40S", 89, "8.9"},
        Gpu{"NVIDIA B200", 100, "10.0"}, Gpu{"NVIDIA GeForce RTX 5090", 120, "12.0"}}) {
    const Status status = check_gpu_kind(3, gpu.name, gpu.compute_capability);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.message(), std::string("GPU 3 is an ") + gpu.name + " of compute capability " +
                                    gpu.said +
                                    ": this program has kernels for 9.0 alone (H100, H200, GH200); "
                                    "use such a GPU (--device cuda:N) or --device cpu");
  }
}

TEST(GpuKind, AutoTakesTheCpuForItsKindAlone) {
  EXPECT_TRUE(auto_takes_cpu(check_gpu_kind(0, "NVIDIA A100", 80)));
  EXPECT_FALSE(auto_takes_cpu(ok_status()));
  EXPECT_FALSE(auto_takes_cpu(unavailable("CUDA does not start")));
  EXPECT_FALSE(auto_takes_cpu(exhausted("no memory")));
}

}  // namespace
}  // namespace headrace::gpu_kind_test
