// (What they compute: ops/states/wkv7_test.cc, token_shift_test.cc, and models/tiny_models_test.cc
// against an implementation of the paper.)
#include "models/parts/time_mix_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/channel_mix_mixer.h"
#include "models/parts/part_fixture.h"

namespace headrace {
namespace {

constexpr int32_t kRows = 60;

// Of layers that are time mix and channel mix by turns.
DecoderSpec mixing_spec() {
  DecoderSpec spec = uniform_decoder(tiny_config());
  const auto hidden = static_cast<int32_t>(spec.model.hidden_size);
  spec.embedding_norm = NormKind::kLayer;
  spec.layers.resize(4, spec.layers.front());
  spec.model.layer_count = 4;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    layer.feed_forward = NoFeedForwardSpec();
    layer.mixer = ChannelMixSpec{.width = 40};
    if (i % 2 == 1) return;
    layer.mixer = TimeMixSpec{.heads = {.heads = 2, .head_dim = hidden / 2},
                              .decay_rank = 3,
                              .rate_rank = 4,
                              .value_rank = 5,
                              .gate_rank = 6,
                              .norm_eps = 1e-4f,
                              .first = i == 0};
  });
  return spec;
}

// As ShortConvMixer's test of this name; the last layer of rows that are read alone is a channel
// mix.
TEST(TimeMixMixer, RunsInADecoder) {
  const DecoderSpec spec = mixing_spec();
  const auto device = create_cpu_device(2);
  const MadeModel made(spec, *device);
  EXPECT_GT(state_entry_bytes(made.model().spec()), 0);
  const auto whole = made.run({kRows});
  for (const auto& steps :
       {std::vector<int32_t>{7, 16, 1, 1, 20, 15}, std::vector<int32_t>(kRows, 1)}) {
    EXPECT_EQ(made.run(steps).logits, whole.logits);
  }
  EXPECT_EQ(made.run({50, 10}, /*read_last=*/1).logits,
            (std::vector{whole.logits[49], whole.logits[59]}));
}

// A layer of a file is two of the decoder.
TEST(TimeMixMixer, LayersMayShareABlockOfTheFile) {
  DecoderSpec spec = mixing_spec();
  for_each_layer(spec, [](DecoderLayerSpec& layer, int32_t i) {
    layer.block = i / 2;
    layer.mixer_norm_name = i % 2 == 0 ? "attn_norm" : "attn_norm_2";
  });
  int32_t norms = 0;
  for (const TensorSpec& tensor : decoder_tensors(spec)) {
    EXPECT_FALSE(tensor.name.starts_with("blk.2.")) << tensor.name;
    norms += tensor.name.starts_with("blk.1.attn_norm") ? 1 : 0;
  }
  EXPECT_EQ(norms, 2);
}

TEST(TimeMixMixer, IsRefusedOnAGpu) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const DecoderSpec spec = mixing_spec();
  for (const DecoderLayerSpec& layer : spec.layers) {
    const auto part = make_any_part(layer.mixer, spec.model.hidden_size);
    const Status refused = part->check_device(gpu, DType::kBF16);
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
    EXPECT_NE(refused.message().find("RWKV"), std::string::npos) << refused.message();
    EXPECT_TRUE(part->check_device({}, DType::kF32).ok());
  }
}

}  // namespace
}  // namespace headrace
