#include "models/parts/kimi_delta_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace {
namespace {

constexpr KimiDeltaSpec kSpec{.heads = {.count = 3, .dim = 12}, .taps = 4, .norm_eps = 1e-6f};

// As DeltaNetMixer's test of this name. (What it computes: ops/states/kimi_delta_test.cc, and
// models/tiny_models_test.cc against transformers.)
TEST(KimiDeltaMixer, RunsInADecoder) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  const auto device = create_cpu_device(2);
  const auto attention_alone = MadeModel(spec, *device).run({60});
  for (const size_t layer : {0, 1}) {
    DecoderSpec mixed = spec;
    mixed.layers[layer].mixer = kSpec;
    const MadeModel made(mixed, *device);
    const auto whole = made.run({60});
    EXPECT_NE(whole.logits, attention_alone.logits);
    for (const auto& steps :
         {std::vector<int32_t>{7, 16, 1, 1, 20, 15}, std::vector<int32_t>(60, 1)}) {
      EXPECT_EQ(made.run(steps).logits, whole.logits);
    }
    EXPECT_EQ(made.run({50, 10}, /*read_last=*/1).logits,
              (std::vector{whole.logits[49], whole.logits[59]}));
  }
}

TEST(KimiDeltaMixer, IsRefusedOnAGpuByName) {
  const Status status =
      make_part(kSpec, 24)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  EXPECT_EQ(status.message(), "Kimi Delta Attention has no kernels on a GPU yet: use --device cpu");
}

}  // namespace
}  // namespace headrace
