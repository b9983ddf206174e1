// (What it computes: ops/states/rg_lru_test.cc, and models/tiny_models_test.cc against
// transformers.)
#include "models/parts/rg_lru_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::rg_lru_mixer_test {
namespace {

constexpr RgLruSpec kSpec{.channels = 24, .heads = 3, .taps = 4};

// As ShortConvMixer's test of this name.
TEST(RgLruMixer, RunsInADecoder) { expect_runs_in_a_decoder(kSpec); }

TEST(RgLruMixer, BitsDoNotDependOnWhereResultsLie) {
  expect_same_bits_in_place_and_apart(kSpec, /*hidden=*/32, /*rows=*/23);
}

TEST(RgLruMixer, ConvolutionsThatAGpuDoesNotTakeAreRefusedByName) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no kernels of a GPU";
  const auto checked = [](int32_t taps) {
    RgLruSpec spec = kSpec;
    spec.taps = taps;
    return make_part(spec, 32)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  };
  EXPECT_TRUE(checked(8).ok());
  EXPECT_EQ(checked(9).message(),
            "convolutions of 9 taps are larger than kernels on a GPU take, which is 8: use "
            "--device cpu");
}

}  // namespace
}  // namespace headrace::rg_lru_mixer_test
