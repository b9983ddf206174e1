#include "models/parts/kimi_delta_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::kimi_delta_mixer_test {
namespace {

constexpr KimiDeltaSpec kSpec{.heads = {.count = 3, .dim = 12}, .taps = 4, .norm_eps = 1e-6f};

// Gates of the row at once, decays above a floor.
KimiDeltaSpec of_ling3() {
  KimiDeltaSpec spec = kSpec;
  spec.low_rank_gates = false;
  spec.decay_floor = -5;
  return spec;
}

// As DeltaNetMixer's test of this name. (What it computes: ops/states/kimi_delta_test.cc, and
// models/tiny_models_test.cc against transformers.)
TEST(KimiDeltaMixer, RunsInADecoder) {
  expect_runs_in_a_decoder(kSpec);
  expect_runs_in_a_decoder(of_ling3());
}

TEST(KimiDeltaMixer, BitsDoNotDependOnWhereResultsLie) {
  for (const KimiDeltaSpec& spec : {kSpec, of_ling3()}) {
    expect_same_bits_in_place_and_apart(spec, /*hidden=*/24, /*rows=*/37);
  }
}

TEST(KimiDeltaMixer, HeadsThatAGpuDoesNotTakeAreRefusedByName) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no kernels of a GPU";
  const auto checked = [](int32_t dim) {
    KimiDeltaSpec spec = kSpec;
    spec.heads.dim = dim;
    return make_part(spec, 24)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  };
  EXPECT_TRUE(checked(128).ok() && checked(256).ok());
  EXPECT_EQ(checked(272).message(),
            "heads of Kimi Delta Attention of 272 are larger than kernels on a GPU take, which is "
            "256: use --device cpu");
}

}  // namespace
}  // namespace headrace::kimi_delta_mixer_test
