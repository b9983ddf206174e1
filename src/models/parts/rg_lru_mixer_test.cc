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

TEST(RgLruMixer, IsRefusedOnAGpu) {
  const auto part = make_part(kSpec, 32);
  const Status refused = part->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_EQ(refused.message(), "the RG-LRU has no kernels on a GPU yet: use --device cpu");
  EXPECT_TRUE(part->check_device({}, DType::kF32).ok());
}

}  // namespace
}  // namespace headrace
