#include "models/parts/kimi_delta_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace {
namespace {

constexpr KimiDeltaSpec kSpec{.heads = {.count = 3, .dim = 12}, .taps = 4, .norm_eps = 1e-6f};

// As DeltaNetMixer's test of this name. (What it computes: ops/states/kimi_delta_test.cc, and
// models/tiny_models_test.cc against transformers.)
TEST(KimiDeltaMixer, RunsInADecoder) { expect_runs_in_a_decoder(kSpec); }

TEST(KimiDeltaMixer, IsRefusedOnAGpuByName) {
  const Status status =
      make_part(kSpec, 24)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  EXPECT_EQ(status.message(), "Kimi Delta Attention has no kernels on a GPU yet: use --device cpu");
}

}  // namespace
}  // namespace headrace
