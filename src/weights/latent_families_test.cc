#include "weights/latent_families.h"

#include <gtest/gtest.h>

#include <string>

#include "weights/gguf_fixture.h"

namespace headrace {
namespace {

// A file of this class, with `more` in the place of its members.
Result<ModelConfig> read_sparse(const std::string& hf_class, const std::string& more = "") {
  Json config = parse_json(R"({"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 7,
    "num_attention_heads": 4, "vocab_size": 96, "kv_lora_rank": 16, "q_lora_rank": 24,
    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "index_head_dim": 16})")
                    .value();
  config.set("architectures", Json(std::vector<Json>{Json(hf_class)}));
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}

using Flags = std::vector<bool>;

TEST(LatentFamilies, DeepSeekHasAnIndexInEachLayer) {
  const auto config = read_sparse("DeepseekV32ForCausalLM", R"("index_topk": 5)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const LatentConfig& latent = config->mixers.latent;
  EXPECT_EQ(latent.index_heads, 64);
  EXPECT_EQ(latent.index_dim, 16);
  EXPECT_EQ(latent.index_top, 5);
  EXPECT_FALSE(latent.index_interleaved);
  EXPECT_TRUE(latent.index_shared.empty());
  EXPECT_FALSE(has_joined_layers(*config));
  EXPECT_EQ(config->experts.groups, 8);
}

TEST(LatentFamilies, LayersOfGlmMayShareAnIndex) {
  const std::string name = "GlmMoeDsaForCausalLM";
  const auto first = read_sparse(name);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->mixers.latent.index_heads, 32);
  EXPECT_EQ(first->mixers.latent.index_top, 2048);
  EXPECT_TRUE(first->mixers.latent.index_interleaved);
  EXPECT_TRUE(first->mixers.latent.index_shared.empty());
  EXPECT_EQ(first->experts.groups, 1);
  EXPECT_EQ(first->rms_eps, 1e-5f);
  const Flags of_list{false, true, true, false, false, true, false};
  for (const std::string& more :
       {std::string(R"("indexer_types": ["full", "shared", "shared", "full", "full", "shared",
                       "full"])"),
        std::string(R"("index_topk_pattern": "FSSFFSF")")}) {
    const auto config = read_sparse(name, more);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->mixers.latent.index_shared, of_list);
    EXPECT_TRUE(has_joined_layers(*config));
  }
  const auto by_period = read_sparse(name, R"("index_topk_freq": 4, "index_skip_topk_offset": 3)");
  EXPECT_EQ(by_period->mixers.latent.index_shared,
            (Flags{false, false, false, true, true, true, false}));
}

TEST(LatentFamilies, RefusesWhatIsNoIndexByItsField) {
  const auto expect = [](const std::string& more, const std::string& field) {
    const auto config = read_sparse("GlmMoeDsaForCausalLM", more);
    ASSERT_FALSE(config.ok()) << more;
    EXPECT_NE(config.status().message().find(field), std::string::npos)
        << config.status().message();
  };
  expect(R"("q_lora_rank": null)", "q_lora_rank: an index of keys needs queries of a latent");
  expect(R"("index_head_dim": 6)", "index_head_dim: 6 is less than the 8 that rotate");
  expect(R"("index_topk": 0)", "index_topk: 0 is outside 1");
  expect(R"("index_topk": 100000000)", "index_topk: 100000000 is outside 1");
  expect(R"("indexer_types": ["full", "shared"])", "indexer_types: is no list of 7 names");
  expect(R"("indexer_types": 3)", "indexer_types: is no list of 7 names");
  expect(R"("index_topk_pattern": "FSSFFSX")", R"(index_topk_pattern: "X" is not supported)");
  expect(R"("index_topk_pattern": "SFFFFFF")", "indexer_types: the first layer has no index");
  expect(R"("index_topk_freq": -1)", "index_topk_freq: is no number");
}

// Of the first two layers each has an index, then each fourth.
TEST(LatentFamilies, HunyuanV4sLayersShareAnIndexWhereAFileIsSilent) {
  const auto config = read_sparse("HYV4ForCausalLM");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.latent.index_shared,
            Flags({false, false, true, true, true, false, true}));
  EXPECT_EQ(config->mixers.latent.index_heads, 16);
  EXPECT_FALSE(config->qk_rows_interleaved);
  EXPECT_EQ(config->mixers.gemma.streams, 4);
  EXPECT_EQ(config->mixers.gemma.hyper_magnitude, 2);
  EXPECT_EQ(config->experts.gate_limit, 10);
  EXPECT_EQ(config->experts.dense_first, 1);
  EXPECT_TRUE(has_joined_layers(*config));
  const auto unlimited = read_sparse("HYV4ForCausalLM", R"("swiglu_limit": 0.0)");
  EXPECT_EQ(unlimited.status().message(),
            "config.json: swiglu_limit: 0 is not between 1e-06 and 1000000");
}

TEST(LatentFamilies, AxK1IsDeepSeekWithOneDenseLayer) {
  const auto config = read_sparse("AXK1ForCausalLM");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->experts.count, 192);
  EXPECT_EQ(config->experts.groups, 8);
  EXPECT_EQ(config->experts.dense_first, 1);
  EXPECT_EQ(config->mixers.latent.index_heads, 0);
}

}  // namespace
}  // namespace headrace
