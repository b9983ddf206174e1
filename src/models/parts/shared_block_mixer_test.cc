// Blocks whose weights several layers share, in a decoder. (What they compute:
// models/tiny_models_test.cc against transformers.)
#include "models/parts/shared_block_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"

namespace headrace::shared_block_mixer_test {
namespace {

constexpr int32_t kRank = 4;

// Two uses of one block of layer 0.
DecoderSpec two_uses(bool adds_to_attention) {
  DecoderSpec spec = uniform_decoder(tiny_config());
  spec.carries_embeddings = true;
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    AttentionSpec attention = layer.attention();
    attention.input = 2 * spec.model.hidden_size;
    layer.mixer = SharedBlockSpec{
        .use = i,
        .attention = attention,
        .width = 20,
        .rank = kRank,
        .adds_to_attention = adds_to_attention,
        .mamba = {.heads = {.heads = 4, .head_dim = 12, .groups = 2, .state_dim = 8},
                  .norm_eps = 1e-6f},
        .norm_eps = 1e-5f};
    layer.mixer_reads_x = true;
    layer.feed_forward = NoFeedForwardSpec();
  });
  return spec;
}

TEST(SharedBlockMixer, ABlocksTensorsAreThereOnceAndEachUsesAdditions) {
  int64_t blocks = 0, additions = 0;
  for (const TensorSpec& tensor : decoder_tensors(two_uses(true))) {
    if (tensor.name == "blk.0.shared.ffn_down.weight") ++blocks;
    if (tensor.name == "blk.1.shared.ffn_down.weight") ++blocks;
    if (tensor.name.find("_add_") != std::string::npos) ++additions;
  }
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(additions, 2 * 2 * (3 + 1));  // uses, matrices; q, k, v, and the network's
}

TEST(SharedBlockMixer, ABlocksMemoryIsTakenOnce) {
  const auto device = create_cpu_device(2);
  DecoderSpec apart = two_uses(false);
  std::get<SharedBlockSpec>(apart.layers[1].mixer).block = 1;
  const DecoderSpec shared = two_uses(false);
  const auto bytes = [&](const DecoderSpec& spec) {
    return MadeModel(spec, *device).model().weight_bytes();
  };
  EXPECT_LT(bytes(shared), bytes(apart));
}

TEST(SharedBlockMixer, RunsInADecoder) {
  const auto plain = expect_bits_of_steps(two_uses(false));
  EXPECT_NE(expect_bits_of_steps(two_uses(true)).logits, plain.logits);
}

}  // namespace
}  // namespace headrace::shared_block_mixer_test
