#include "weights/inkling_family.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::inkling_family_test {
namespace {

using Flags = std::vector<bool>;

// A file of this class, with `more` in the place of its members.
Result<ModelConfig> read(const std::string& more) {
  Json config = parse_json(R"({"architectures": ["InklingForCausalLM"], "hidden_size": 32,
    "num_hidden_layers": 7, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 96})")
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

TEST(InklingFamily, AssumesWhatTheClassDoes) {
  const ModelConfig config = config_of("");
  const HeadSizes& sizes = config.mixers.head_sizes;
  EXPECT_EQ(config.sliding_layers, (Flags{true, true, true, true, true, false, true}));
  EXPECT_EQ(config.window, 512);
  EXPECT_EQ(sizes.sliding_heads, 64);
  EXPECT_EQ(sizes.sliding_kv_heads, 16);
  EXPECT_EQ(sizes.sliding_head_dim, 128);
  EXPECT_EQ(sizes.profiles.count, 16);
  EXPECT_EQ(sizes.profiles.extent, 1024);
  EXPECT_EQ(config.mixers.conv_taps, 4);
  EXPECT_EQ(config.mixers.temperature.scale, 0);
  EXPECT_EQ(config.logit_divisor, 24);
  EXPECT_EQ(config.experts.used, 6);
  EXPECT_EQ(config.experts.shared_count, 2);
  EXPECT_EQ(config.experts.scale, 8);
  EXPECT_TRUE(config.experts.in_layer(0));
  EXPECT_EQ(config.head.tokens, 0);
  EXPECT_TRUE(has_states(config) && any_attends(config) && !config.mixers.rotates);
}

TEST(InklingFamily, LayersAndWidthsHaveTwoSpellings) {
  for (const char* more :
       {R"("layer_types": ["hybrid", "hybrid_sliding", "hybrid", "hybrid", "hybrid",
           "hybrid_sliding", "hybrid"], "mlp_layer_types": ["dense", "dense", "sparse", "sparse",
           "sparse", "sparse", "sparse"], "intermediate_size": 48, "moe_intermediate_size": 24,
           "conv_kernel_size": 3, "max_position_embeddings": 256, "sliding_window": 12)",
        R"("local_layer_ids": [1, 5], "dense_mlp_idx": 2, "intermediate_size": 24,
           "dense_intermediate_size": 48, "sconv_kernel_size": 3, "model_max_length": 256,
           "sliding_window_size": 12)"}) {
    const ModelConfig config = config_of(more);
    EXPECT_EQ(config.sliding_layers, (Flags{false, true, false, false, false, true, false}));
    EXPECT_TRUE(!config.experts.in_layer(1) && config.experts.in_layer(2));
    EXPECT_EQ(config.ffn, 48);
    EXPECT_EQ(config.experts.width, 24);
    EXPECT_EQ(config.mixers.conv_taps, 3);
    EXPECT_EQ(config.context_length, 256);
    EXPECT_EQ(config.window, 12);
  }
}

TEST(InklingFamily, QueriesMayGrowAndOutputsBeFewer) {
  const ModelConfig config = config_of(R"("log_scaling_n_floor": 16, "log_scaling_alpha": 0.4,
      "unpadded_vocab_size": 90, "logits_mup_width_multiplier": 3)");
  const TemperatureConfig& rule = config.mixers.temperature;
  EXPECT_TRUE(rule.smooth);
  EXPECT_EQ(rule.scale, 0.4f);
  EXPECT_EQ(rule.step, 16);
  EXPECT_EQ(rule.offset, 1);
  EXPECT_EQ(config.head.tokens, 90);
  EXPECT_TRUE(config.head.padded);
  EXPECT_EQ(config.logit_divisor, 3);
}

// Of two names of one number the later one of the class; keys of other classes are not read.
TEST(InklingFamily, ReadsWhatItsClassReads) {
  const ModelConfig config = config_of(R"("embedding_multiplier": 7, "norm_topk_prob": false,
      "logits_mup_width_multiplier": 3, "tie_word_embeddings": true)");
  EXPECT_EQ(config.logit_divisor, 7);
  EXPECT_EQ(config.experts.normalised, true);
  EXPECT_FALSE(config.tied_embeddings);
}

TEST(InklingFamily, WhatIsNotSupportedIsRefusedByItsName) {
  EXPECT_EQ(error_of(R"("shared_expert_sink": false)"),
            "config.json: shared_expert_sink: is not supported, only true or none");
  EXPECT_EQ(error_of(R"("swa_num_key_value_heads": 6)"),
            "config.json: swa_num_key_value_heads: 6 key/value heads do not divide 64 query heads");
  EXPECT_EQ(error_of(R"("swa_head_dim": 9)"), "config.json: swa_head_dim: head size 9 is odd");
  EXPECT_EQ(error_of(R"("log_scaling_n_floor": 16, "log_scaling_alpha": -1)"),
            "config.json: log_scaling_alpha: is no number from 0 to 1000");
  EXPECT_EQ(error_of(R"("d_rel": 0)"), "config.json: d_rel: is no number from 1 to 4096");
  EXPECT_EQ(error_of(R"("sliding_window_size": 0)"),
            "config.json: sliding_window_size: 0 tokens are no window");
  EXPECT_EQ(error_of(R"("layer_types": ["hybrid", "full_attention"])"),
            "config.json: layer_types: \"full_attention\" is not supported (known: hybrid, "
            "hybrid_sliding)");
  EXPECT_EQ(error_of(R"("layer_types": ["hybrid"])"),
            "config.json: layer_types: 1 entries for 7 layers");
}

}  // namespace
}  // namespace headrace::inkling_family_test
