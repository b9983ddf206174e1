// (What it computes: ops/states/rg_lru_test.cc, and models/tiny_models_test.cc against
// transformers.)
#include "models/parts/rg_lru_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace {
namespace {

constexpr RgLruSpec kSpec{.channels = 24, .heads = 3, .taps = 4};

// As ShortConvMixer's test of this name.
TEST(RgLruMixer, RunsInADecoder) { expect_runs_in_a_decoder(kSpec); }

// As decoder.cc shares scratch memory on a CPU, and apart, as on a GPU.
TEST(RgLruMixer, BitsDoNotDependOnWhereResultsLie) {
  constexpr int32_t kRows = 23, kHidden = 32;
  Rng rng(3);
  const TestMatrix x(rng, kRows, kHidden);
  std::vector<TestMatrix> results;
  for (const bool in_place : {true, false}) {
    PartPass pass(kRows, kHidden, in_place);
    MadeTensors tensors(pass.device());
    const auto part = make_part(kSpec, kHidden);
    ASSERT_TRUE(part->load(tensors).ok());
    PartCache cache(pass.device(), *part, kRows);
    results.push_back(pass.run(*part, cache, x, {}));
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

TEST(RgLruMixer, ConvolutionsThatAGpuDoesNotTakeAreRefusedByName) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no kernels of a GPU";
  const auto checked = [](int32_t taps) {
    RgLruSpec spec = kSpec;
    spec.taps = taps;
    return make_part(spec, 32)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  };
  EXPECT_TRUE(checked(4).ok());
  EXPECT_EQ(checked(5).message(),
            "convolutions of 5 taps are larger than kernels on a GPU take, which is 4: use "
            "--device cpu");
}

}  // namespace
}  // namespace headrace
