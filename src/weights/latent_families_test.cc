#include "weights/latent_families.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "weights/gguf_fixture.h"

namespace headrace::latent_families_test {
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

TEST(LatentFamilies, AxK2HasAnIndexAndGatesOfRows) {
  const std::string name = "AXK2ForCausalLM";
  const auto silent = read_sparse(name, R"("n_group": null, "topk_group": null)");
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_EQ(silent->experts.count, 128);
  EXPECT_EQ(silent->experts.groups, 1);
  EXPECT_EQ(silent->experts.scale, 2.5f);
  EXPECT_EQ(silent->mixers.latent.index_heads, 16);
  EXPECT_EQ(silent->mixers.latent.index_top, 2048);
  EXPECT_EQ(silent->mixers.latent.norm_gate_rank, 16);
  EXPECT_TRUE(silent->mixers.latent.index_shared.empty());
  const auto config = read_sparse(name, R"("n_group": 4, "topk_group": 2, "gated_norm_rank": 3,
      "rope_interleave": false)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->experts.groups, 4);
  EXPECT_EQ(config->mixers.latent.norm_gate_rank, 3);
  EXPECT_TRUE(config->qk_rows_interleaved);  // which the class does not read
  EXPECT_EQ(read_sparse(name, R"("gated_norm_rank": 0)").status().message(),
            "config.json: gated_norm_rank: 0 is outside 1 to 1048576");
  EXPECT_EQ(read_sparse(name, R"("q_lora_rank": null)").status().message(),
            "config.json: q_lora_rank: an index of keys needs queries of a latent");
}

TEST(LatentFamilies, LongCatsLayersAreCountedWholeOrByHalves) {
  const std::string name = "LongcatFlashForCausalLM";
  const auto silent = read_sparse(name, R"("num_hidden_layers": 14)");
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_EQ(silent->layers, 7);
  const auto config =
      read_sparse(name, R"("num_layers": 3, "zero_expert_num": 4, "n_routed_experts": 6,
      "moe_topk": 8, "ffn_hidden_size": 40, "zero_expert_type": "identity",
      "mla_scale_q_lora": true)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layers, 3);
  EXPECT_EQ(config->ffn, 48);  // the usual name's, where a file has both
  EXPECT_EQ(config->experts.identities, 4);
  EXPECT_EQ(config->experts.used, 8);
  EXPECT_TRUE(has_joined_layers(*config));
  for (const auto& [more, said] :
       {std::pair(R"("zero_expert_type": "copy")",
                  "zero_expert_type: is not supported, only \"identity\" or none"),
        {R"("router_bias": true)", "router_bias: is not supported, only false or none"},
        {R"("mla_scale_kv_lora": false)", "mla_scale_kv_lora: is not supported, only true or none"},
        {R"("num_layers": 0)", "num_layers: 0 is outside 1 to 1024"},
        {R"("moe_topk": 800)", "moe_topk: 800 is outside 1 to the 768 experts"},
        {R"("zero_expert_num": -1)", "zero_expert_num: -1 is outside 0 to 4096"}}) {
    EXPECT_EQ(read_sparse(name, more).status().message(), std::string("config.json: ") + said);
  }
}

TEST(LatentFamilies, Mistral4sQueriesGrow) {
  const std::string name = "Mistral4ForCausalLM";
  const auto silent = read_sparse(name);
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_EQ(silent->rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(silent->mixers.temperature.step, 8192);
  EXPECT_EQ(silent->experts.scores, ExpertScores::kSoftmax);
  EXPECT_TRUE(silent->experts.normalised.value_or(false));
  const auto config = read_sparse(name, R"("n_group": 4, "topk_group": 2, "rope_parameters":
      {"rope_type": "default", "rope_theta": 500, "llama_4_scaling_beta": 0.5,
       "original_max_position_embeddings": 32})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(config->mixers.temperature.scale, 0.5f);
  EXPECT_EQ(config->mixers.temperature.step, 32);
  EXPECT_EQ(config->experts.groups, 4);
}

TEST(LatentFamilies, TheTextHalfSaysWhichOfMistralsModelsItIs) {
  const std::string wrapped = R"("architectures": ["Mistral3ForConditionalGeneration"],
      "text_config": {"model_type": "MODEL", "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
      "vocab_size": 96, "head_dim": 8})";
  const auto architecture_of = [&](const std::string& type) {
    std::string text = "{" + wrapped + "}";
    text.replace(text.find("MODEL"), 5, type);
    const auto config = model_config_from_json(parse_json(text).value(), Json(), "config.json");
    return config.ok() ? config->architecture : std::string(config.status().message());
  };
  EXPECT_EQ(architecture_of("mistral4"), "mistral4");
  EXPECT_EQ(architecture_of("ministral3"), "mistral3");
}

TEST(LatentFamilies, SarvamsFilesHaveOtherNamesForDeepSeeksNumbers) {
  const auto config = read_sparse("SarvamMLAForCausalLM", R"("num_experts": 8,
      "num_shared_experts": 2, "q_lora_rank": null, "rope_scaling": {"type": "deepseek_yarn",
      "factor": 4, "original_max_position_embeddings": 32}, "head_dim": 24)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->experts.count, 8);
  EXPECT_EQ(config->experts.shared_count, 2);
  EXPECT_EQ(config->experts.groups, 1);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(config->mixers.latent.query_rank, 0);
}

}  // namespace
}  // namespace headrace::latent_families_test
