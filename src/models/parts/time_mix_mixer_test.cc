// (What they compute: ops/states/wkv7_test.cc, token_shift_test.cc, and models/tiny_models_test.cc
// against an implementation of the paper.)
#include "models/parts/time_mix_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/channel_mix_mixer.h"
#include "models/parts/part_fixture.h"

namespace headrace::time_mix_mixer_test {
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

// As decoder.cc shares scratch memory on a CPU, and apart, as on a GPU.
TEST(TimeMixMixer, BitsDoNotDependOnWhereResultsLie) {
  constexpr int32_t kHidden = 24;
  Rng rng(3);
  const TestMatrix x(rng, kRows, kHidden);
  const TestMatrix first_values(rng, kRows, kHidden);
  for (const bool first : {true, false}) {
    const TimeMixSpec spec{.heads = {.heads = 2, .head_dim = kHidden / 2},
                           .decay_rank = 3,
                           .rate_rank = 4,
                           .value_rank = 5,
                           .gate_rank = 6,
                           .norm_eps = 1e-4f,
                           .first = first};
    std::vector<TestMatrix> results;
    for (const bool in_place : {true, false}) {
      PartPass pass(kRows, kHidden, in_place);
      MadeTensors tensors(pass.device());
      const auto part = make_part(spec, kHidden);
      ASSERT_TRUE(part->load(tensors).ok());
      PartCache cache(pass.device(), *part, kRows);
      TestMatrix carried = first_values;
      results.push_back(pass.run(*part, cache, x, {.carried = carried.view()}));
      results.push_back(carried);
    }
    EXPECT_TRUE(same_bits(results[0], results[2]));
    EXPECT_TRUE(same_bits(results[1], results[3]));
    EXPECT_EQ(same_bits(results[1], first_values), !first);
  }
}

TEST(TimeMixMixer, HeadsThatAGpuDoesNotTakeAreRefusedByName) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no kernels of a GPU";
  const auto checked = [](int32_t head_dim, DeviceKind kind) {
    const TimeMixSpec spec{.heads = {.heads = 2, .head_dim = head_dim}};
    return make_part(spec, spec.heads.channels())->check_device({.kind = kind}, DType::kBF16);
  };
  for (const int32_t head_dim : {1, 16, 64, 100, 128}) {
    EXPECT_TRUE(checked(head_dim, DeviceKind::kCuda).ok()) << head_dim;
  }
  EXPECT_EQ(checked(192, DeviceKind::kCuda).message(),
            "heads of RWKV of 192 are larger than kernels on a GPU take, which is 128: use "
            "--device cpu");
  EXPECT_TRUE(checked(192, DeviceKind::kCpu).ok());
  EXPECT_TRUE(make_part(ChannelMixSpec{.width = 40}, 24)
                  ->check_device({.kind = DeviceKind::kCuda}, DType::kBF16)
                  .ok());
}

}  // namespace
}  // namespace headrace::time_mix_mixer_test
