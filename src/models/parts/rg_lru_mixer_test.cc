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
TEST(RgLruMixer, RunsInADecoder) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  const auto device = create_cpu_device(2);
  const auto attention_alone = MadeModel(spec, *device).run({60});
  for (const size_t layer : {0, 1}) {
    DecoderSpec mixed = spec;
    mixed.layers[layer].mixer = kSpec;
    const MadeModel made(mixed, *device);
    EXPECT_GT(state_entry_bytes(made.model().spec()), 0);
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

TEST(RgLruMixer, IsRefusedOnAGpu) {
  const auto part = make_part(kSpec, 32);
  const Status refused = part->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_EQ(refused.message(), "the RG-LRU has no kernels on a GPU yet: use --device cpu");
  EXPECT_TRUE(part->check_device({}, DType::kF32).ok());
}

}  // namespace
}  // namespace headrace
