#include "models/decoder.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"

namespace headrace::decoder_test {
namespace {

// The second layer's heads are more and wider, its network is narrower and not gated, and it has
// norms behind its parts.
DecoderSpec unequal_layers() {
  DecoderSpec spec = uniform_decoder(tiny_config());
  DecoderLayerSpec& second = spec.layers[1];
  second.attention().heads = 8;
  second.attention().kv_heads = 4;
  second.attention().head_dim = 16;
  second.attention().window = 20;
  second.dense().width = 40;
  second.dense().tensors = DenseTensors::kPlain;
  second.post_norm = NormKind::kRms;
  return spec;
}

TEST(Decoder, LayersOfUnequalPartsShareScratchMemory) {
  const auto device = create_cpu_device(2);
  const MadeModel made(unequal_layers(), *device);
  const SequenceValues whole = made.run({60});
  for (const auto& steps :
       {std::vector<int32_t>{7, 16, 1, 1, 20, 15}, std::vector<int32_t>(60, 1)}) {
    const SequenceValues cut = made.run(steps);
    EXPECT_EQ(cut.logits, whole.logits);
    EXPECT_EQ(cut.hidden, whole.hidden);
  }
  EXPECT_EQ(made.run({50, 10}, /*read_last=*/2).logits,
            (std::vector{whole.logits[48], whole.logits[49], whole.logits[58], whole.logits[59]}));
}

// Behind a last layer that keeps the rows that are read a tap gets these alone, with the bits that
// they have among all; behind the layers before it all rows.
TEST(Decoder, ATapBehindALayerThatKeepsRowsGetsTheseRows) {
  const auto device = create_cpu_device(2);
  for (const DecoderSpec& spec : {unequal_layers(), uniform_decoder(tiny_config())}) {
    const MadeModel made(spec, *device);
    const SequenceValues whole = made.run({60}), kept = made.run({50, 1, 9}, /*read_last=*/4);
    EXPECT_EQ(kept.hidden.front(), whole.hidden.front());
    std::vector<std::vector<float>> expected;  // the step of one row keeps it as it is
    for (const size_t row : {46, 47, 48, 49, 50, 56, 57, 58, 59}) {
      expected.push_back(whole.hidden.back()[row]);
    }
    EXPECT_EQ(kept.hidden.back(), expected);
  }
}

TEST(Decoder, ItsSpecSaysWhatItsMixersKeep) {
  const ModelSpec spec = model_spec(unequal_layers());
  EXPECT_EQ(spec.query_heads, 8);
  ASSERT_EQ(spec.kv.size(), 2u);
  EXPECT_EQ(spec.kv[0].kv_heads, 2);
  EXPECT_EQ(spec.kv[0].window, 0);
  EXPECT_EQ(spec.kv[1].kv_heads, 4);
  EXPECT_EQ(spec.kv[1].k_dim, 16);
  EXPECT_EQ(spec.kv[1].v_dim, 16);
  EXPECT_EQ(spec.kv[1].window, 20);
}

TEST(Decoder, ItsTensorsAreThoseThatItsLayersAskFor) {
  std::vector<std::string> second;
  for (const TensorSpec& tensor : decoder_tensors(unequal_layers())) {
    if (tensor.name.starts_with("blk.1.")) {
      second.push_back(tensor.name.substr(6) + " " + tensor.shape.to_string());
    }
  }
  EXPECT_EQ(second,
            (std::vector<std::string>{
                "attn_norm.weight [48]", "attn_q.weight [128, 48]", "attn_k.weight [64, 48]",
                "attn_v.weight [64, 48]", "attn_output.weight [48, 128]",
                "post_attention_norm.weight [48]", "ffn_norm.weight [48]", "ffn_up.weight [40, 48]",
                "ffn_down.weight [48, 40]", "post_ffw_norm.weight [48]"}));
}

}  // namespace
}  // namespace headrace::decoder_test
