#include "weights/gemma_families.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace headrace::gemma_families_test {
namespace {

// A file of `members`, and of `more` in their place.
Result<ModelConfig> read_gemma(const std::string& members, const std::string& more = "") {
  Json config = parse_json("{" + members + "}").value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}
// What is said of it; empty: it is read.
std::string gemma_error(const std::string& members, const std::string& more) {
  const auto config = read_gemma(members, more);
  return config.ok() ? "" : std::string(config.status().message());
}

const std::string kGemma4 = R"("architectures": ["Gemma4ForCausalLM"], "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "vocab_size": 96,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";
const std::string kGemma3n = R"("architectures": ["Gemma3nForCausalLM"], "hidden_size": 32,
  "intermediate_size": [40, 40, 48], "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "num_kv_shared_layers": 1,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
  "activation_sparsity_pattern": [0.95, 0.5, 0.0])";

TEST(GemmaFamilies, Gemma4HasHeadsOfTwoKinds) {
  const auto plain = read_gemma(kGemma4);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->head_dim, 16);
  EXPECT_EQ(plain->rope_dim, 16);
  EXPECT_EQ(plain->mixers.gemma.full_head_dim, 32);
  EXPECT_EQ(plain->mixers.gemma.input_width, 256);
  EXPECT_EQ(plain->mixers.gemma.full_kv_heads, 0);  // as the others
  EXPECT_FALSE(plain->mixers.gemma.full_values_are_keys);
  const auto equal =
      read_gemma(kGemma4, R"("attention_k_eq_v": true, "num_global_key_value_heads": 1)");
  EXPECT_TRUE(equal->mixers.gemma.full_values_are_keys);
  EXPECT_EQ(equal->mixers.gemma.full_kv_heads, 1);
  // As transformers writes it now.
  const auto listed = read_gemma(kGemma4, R"("global_head_dim": null, "per_layer_config":
    {"1": {"head_dim": 64, "num_key_value_heads": 4}, "3": {"head_dim": 64,
    "num_key_value_heads": 4}})");
  ASSERT_TRUE(listed.ok()) << listed.status().message();
  EXPECT_EQ(listed->mixers.gemma.full_head_dim, 64);
  EXPECT_EQ(listed->mixers.gemma.full_kv_heads, 4);
  const auto wide =
      read_gemma(kGemma4, R"("num_kv_shared_layers": 2, "use_double_wide_mlp": true)");
  EXPECT_EQ(wide->mixers.gemma.widths, (std::vector<int32_t>{48, 48, 96, 96}));
  EXPECT_EQ(read_gemma(kGemma4, R"("num_experts": 4, "top_k_experts": 2,
    "moe_intermediate_size": 24)")
                ->experts.count,
            0);  // enable_moe_block does not say so
}

TEST(GemmaFamilies, Gemma3nHasWidthsAndCutoffsOfLayers) {
  const auto config = read_gemma(kGemma3n);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.gemma.widths, (std::vector<int32_t>{40, 40, 48}));
  EXPECT_EQ(config->ffn, 48);
  EXPECT_EQ(config->mixers.gemma.streams, 4);
  ASSERT_EQ(config->mixers.gemma.gate_cutoffs.size(), 3u);
  EXPECT_NEAR(config->mixers.gemma.gate_cutoffs[0], 1.6448536f, 1e-6);
  EXPECT_NEAR(config->mixers.gemma.gate_cutoffs[1], 0.0f, 1e-7);
  EXPECT_TRUE(std::isnan(config->mixers.gemma.gate_cutoffs[2]));
  for (const auto& [share, cutoff] : {std::pair("0.001", -3.0902323f), {"0.99", 2.3263479f}}) {
    const auto other = read_gemma(
        kGemma3n, std::string(R"("activation_sparsity_pattern": [)") + share + ", 0, 0]");
    EXPECT_NEAR(other->mixers.gemma.gate_cutoffs[0], cutoff, 1e-6);
  }
}

TEST(GemmaFamilies, WhatDoesNotGoTogetherIsNamed) {
  const auto names = [](const std::string& error, const char* what) {
    EXPECT_NE(error.find(what), std::string::npos) << error;
  };
  names(gemma_error(kGemma4, R"("num_kv_shared_layers": 4)"),
        "num_kv_shared_layers: 4 of 4 layers: layer 0 has none of its kind before them");
  names(gemma_error(kGemma4, R"("num_kv_shared_layers": 3)"), "layer 1 has none of its kind");
  names(gemma_error(kGemma4, R"("use_bidirectional_attention": "all")"),
        "use_bidirectional_attention");
  names(gemma_error(kGemma4, R"("attention_k_eq_v": true, "num_global_key_value_heads": 3)"),
        "num_global_key_value_heads: 4 heads of 32 do not share 3 key heads");
  names(gemma_error(kGemma4, R"("per_layer_config": {"0": {"head_dim": 8}})"),
        "per_layer_config: layer 0 differs from others of its kind");
  names(gemma_error(kGemma4, R"("per_layer_config": {"1": {"head_dim": "8"}})"),
        "per_layer_config: head_dim of layer 1 is no number");
  names(gemma_error(kGemma4, R"("sliding_window": null)"), "sliding_window");
  names(gemma_error(kGemma3n, R"("intermediate_size": [40, 40])"),
        "intermediate_size: 2 widths for 3 layers");
  names(gemma_error(kGemma3n, R"("activation_sparsity_pattern": [0.5])"),
        "activation_sparsity_pattern: is no list of 3 numbers");
  names(gemma_error(kGemma3n, R"("activation_sparsity_pattern": [1, 0, 0])"),
        "activation_sparsity_pattern: has a number that is not from 0 to below 1");
  names(gemma_error(kGemma3n, R"("altup_active_idx": 4)"),
        "altup_active_idx: 4 is none of 4 streams");
  EXPECT_TRUE(read_gemma(kGemma4, R"("use_bidirectional_attention": "vision")").ok());
}

}  // namespace
}  // namespace headrace::gemma_families_test
