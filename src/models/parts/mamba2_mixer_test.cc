// Mamba-2 in a decoder: alone, beside attention, and in layers of one part. (What it computes:
// ops/states/ssd_scan_test.cc, and models/tiny_models_test.cc against transformers.)
#include "models/parts/mamba2_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::mamba2_mixer_test {
namespace {

constexpr int32_t kRows = 60;
const Mamba2Spec kSpec{.heads = {.heads = 4, .head_dim = 12, .groups = 2, .state_dim = 8},
                       .norm_eps = 1e-6f};

TEST(Mamba2Mixer, RunsInADecoder) { expect_runs_in_a_decoder(kSpec); }

// What both make of a row is added up: with a scale of nothing one is as if it were alone.
TEST(Mamba2Mixer, RunsBesideAttention) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  DecoderSpec both = spec;
  for (DecoderLayerSpec& layer : both.layers) {
    layer.mixer = ParallelMixerSpec{
        .mamba = kSpec, .attention = layer.attention(), .mamba_scale = 0.5f, .attention_scale = 2};
  }
  const auto sums = expect_bits_of_steps(both);
  for (DecoderLayerSpec& layer : both.layers) {
    auto& mixers = std::get<ParallelMixerSpec>(layer.mixer);
    mixers.mamba_scale = 0;
    mixers.attention_scale = 1;
  }
  const auto device = create_cpu_device(2);
  const auto attention = MadeModel(spec, *device).run({kRows});
  const auto beside_nothing = MadeModel(both, *device).run({kRows});
  EXPECT_NE(sums.logits, beside_nothing.logits);
  ASSERT_EQ(beside_nothing.logits.size(), attention.logits.size());
  for (size_t row = 0; row < attention.logits.size(); ++row) {
    for (size_t i = 0; i < attention.logits[row].size(); ++i) {
      ASSERT_NEAR(beside_nothing.logits[row][i], attention.logits[row][i], 1e-5);
    }
  }
}

TEST(Mamba2Mixer, LayersMayLackAPart) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  DecoderSpec one_part = spec;
  one_part.layers[0].feed_forward = NoFeedForwardSpec();
  one_part.layers[1].mixer = NoMixerSpec();
  const auto attention_then_network = expect_bits_of_steps(one_part);
  EXPECT_NE(attention_then_network.logits, expect_bits_of_steps(spec).logits);
  for (const TensorSpec& tensor : decoder_tensors(one_part)) {
    EXPECT_EQ(tensor.name.find("blk.0.ffn"), std::string::npos) << tensor.name;
    EXPECT_EQ(tensor.name.find("blk.1.attn"), std::string::npos) << tensor.name;
  }
  one_part.layers[0].mixer = kSpec;
  one_part.layers[1].mixer = kSpec;
  one_part.layers[1].feed_forward = NoFeedForwardSpec();
  expect_bits_of_steps(one_part);  // no layer attends, and none has a network
}

}  // namespace
}  // namespace headrace::mamba2_mixer_test
