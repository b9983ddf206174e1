#include "weights/deepseek4_family.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::deepseek4_family_test {
namespace {

using Kind = SharedKeysConfig::Kind;
using Kinds = std::vector<Kind>;
using Flags = std::vector<bool>;

// A file of this class, with `more` in the place of its members.
Result<ModelConfig> read(const std::string& more = "") {
  Json config = parse_json(R"({"architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 32,
    "num_hidden_layers": 5, "num_attention_heads": 8, "vocab_size": 96, "head_dim": 32,
    "qk_rope_head_dim": 8, "moe_intermediate_size": 24})")
                    .value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}

ModelConfig config_of(const std::string& more) {
  const auto config = read(more);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}
std::string error_of(const std::string& more) {
  const auto config = read(more);
  EXPECT_FALSE(config.ok()) << more;
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(DeepSeek4Family, AssumesWhatTheClassDoes) {
  const ModelConfig config = config_of("");
  const SharedKeysConfig& keys = config.mixers.latent.shared_keys;
  EXPECT_EQ(keys.layers, (Kinds{Kind::kAll, Kind::kAll, Kind::kAll, Kind::kIndexed, Kind::kAll}));
  EXPECT_EQ(keys.networks_by_token, (Flags{true, true, true, false, false}));
  EXPECT_EQ(keys.indexed_rate, 4);
  EXPECT_EQ(keys.all_rate, 128);
  EXPECT_EQ(config.window, 128);
  EXPECT_EQ(config.kv_heads, 1);
  EXPECT_EQ(config.rope_dim, 8);
  EXPECT_EQ(config.rope_theta, 160000);
  EXPECT_EQ(config.rope_theta_local, 10000);
  EXPECT_EQ(config.experts.scores, ExpertScores::kSqrtSoftplus);
  EXPECT_EQ(config.experts.shared_width, 24);
  EXPECT_TRUE(shares_keys(config) && has_joined_layers(config));
}

TEST(DeepSeek4Family, LayersHaveTwoSpellings) {
  for (const char* more :
       {R"("layer_types": ["sliding_attention", "compressed_sparse_attention",
           "heavily_compressed_attention", "sliding_attention", "sliding_attention"],
           "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "moe"],
           "compress_rates": {"compressed_sparse_attention": 8,
           "heavily_compressed_attention": 64})",
        R"("compress_ratios": [0, 4, 128, 0, 0, 0], "num_nextn_predict_layers": 1,
           "num_hash_layers": 1, "compress_rate_csa": 8, "compress_rate_hca": 64)"}) {
    const SharedKeysConfig keys = config_of(more).mixers.latent.shared_keys;
    EXPECT_EQ(keys.layers,
              (Kinds{Kind::kNone, Kind::kIndexed, Kind::kAll, Kind::kNone, Kind::kNone}));
    EXPECT_EQ(keys.networks_by_token, (Flags{true, false, false, false, false}));
    EXPECT_EQ(keys.indexed_rate, 8);
    EXPECT_EQ(keys.all_rate, 64);
  }
  const char* windows = R"("compress_ratios": [0, 0, 0, 0, 0])";
  EXPECT_FALSE(shares_keys(config_of(windows)));
}

// The hub's file has one scaling, of layers that share keys, whose angles it does not scale.
TEST(DeepSeek4Family, RotationsHaveTwoSpellings) {
  const ModelConfig hub = config_of(
      R"("rope_theta": 5000, "compress_rope_theta": 70000, "rope_scaling": {"type": "yarn",
        "factor": 16, "original_max_position_embeddings": 64})");
  EXPECT_EQ(hub.rope_theta, 70000);
  EXPECT_EQ(hub.rope_theta_local, 5000);
  EXPECT_EQ(hub.rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(hub.rope_scaling.attention_factor, 1);
  EXPECT_EQ(hub.rope_scaling.original_context, 64);
  const ModelConfig library =
      config_of(R"("rope_theta": 5000, "rope_parameters": {"main": {"rope_type": "default",
        "rope_theta": 6000, "partial_rotary_factor": 0.5}, "compress": {"rope_type": "yarn",
        "rope_theta": 80000, "partial_rotary_factor": 0.5, "factor": 4,
        "original_max_position_embeddings": 64}})");
  EXPECT_EQ(library.rope_theta, 80000);
  EXPECT_EQ(library.rope_theta_local, 6000);
  EXPECT_EQ(library.rope_dim, 16);
  EXPECT_EQ(library.rope_scaling.attention_factor, 0);  // by yarn's rule
}

// Other classes read these.
TEST(DeepSeek4Family, KeysThatTheClassDoesNotReadMeanNothing) {
  const ModelConfig config =
      config_of(R"("num_key_value_heads": 8, "n_shared_experts": 3, "norm_topk_prob": false,
        "n_group": 7, "topk_group": 4, "first_k_dense_replace": 3, "attention_bias": true,
        "layer_types": null, "num_hash_layers": null, "use_sliding_window": false)");
  EXPECT_EQ(config.kv_heads, 1);
  EXPECT_EQ(config.window, 128);
  EXPECT_EQ(config.experts.shared_width, 24);
  EXPECT_EQ(config.experts.groups, 1);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_TRUE(config.experts.normalised.value_or(true) && config.experts.in_layer(0));
  EXPECT_EQ(config_of(R"("moe_intermediate_size": null, "intermediate_size": 40)").experts.width,
            40);
}

TEST(DeepSeek4Family, WhatIsNotSupportedIsRefusedByItsName) {
  const auto expect = [](const std::string& more, const std::string& message) {
    EXPECT_EQ(error_of(more), "config.json: " + message);
  };
  expect(R"("o_groups": 3)", "o_groups: 3 groups do not divide 8 heads");
  expect(R"("sliding_window": 0)", "sliding_window: 0 tokens are no window");
  expect(R"("index_head_dim": 4)", "index_head_dim: 4 is less than the 8 that rotate");
  expect(R"("scoring_func": "softmax")",
         "scoring_func: \"softmax\" is not supported (known: sqrtsoftplus, sigmoid)");
  expect(R"("mlp_bias": true)", "mlp_bias: is not supported");
  expect(R"("expert_dtype": "fp4")", "expert_dtype: \"fp4\" is not supported, only none");
  expect(R"("compress_rate_csa": 1)", "compress_rate_csa: is no number from 2 to 4096");
  expect(R"("compress_ratios": [0, 4, 16, 0, 0])",
         "compress_ratios: 16 is not supported (known: 0, 4, 128)");
  expect(R"("layer_types": ["full_attention", "sliding_attention", "sliding_attention",
            "sliding_attention", "sliding_attention"])",
         "layer_types: \"full_attention\" is not supported (known: sliding_attention, "
         "compressed_sparse_attention, heavily_compressed_attention)");
  expect(R"("mlp_layer_types": ["dense", "moe", "moe", "moe", "moe"])",
         "mlp_layer_types: \"dense\" is not supported (known: hash_moe, moe)");
  expect(R"("rope_parameters": {"main": {"partial_rotary_factor": 0.5}, "compress": {}})",
         "rope_parameters: main and compress of different partial_rotary_factor are not supported");
  EXPECT_NE(error_of(R"("layer_types": ["sliding_attention"])").find("layer_types"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::deepseek4_family_test
