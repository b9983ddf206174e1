#include "weights/llama4_family.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::llama4_family_test {
namespace {

// A file of `members`, and of `more` in their place.
Result<ModelConfig> read_tuned(const std::string& members, const std::string& more = "") {
  Json config = parse_json("{" + members + "}").value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}

const std::string kLlama4 = R"("architectures": ["Llama4ForCausalLM"], "hidden_size": 32,
  "intermediate_size": 40, "intermediate_size_mlp": 48, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
  "interleave_moe_layer_step": 2)";
const std::string kMinistral3 = R"("architectures": ["Ministral3ForCausalLM"], "hidden_size": 32,
  "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "rope_parameters": {
  "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "llama_4_scaling_beta": 0.25,
  "original_max_position_embeddings": 64})";

using Flags = std::vector<bool>;

TEST(Llama4Family, ThreeOfFourLayersRotateAndSeeAChunk) {
  const auto config = read_tuned(kLlama4);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->ffn, 48);
  EXPECT_EQ(config->experts.width, 40);
  EXPECT_EQ(config->experts.shared_width, 40);
  EXPECT_EQ(config->experts.dense_layers, (Flags{true, false, true, false}));
  EXPECT_EQ(config->rope_layers, (Flags{true, true, true, false}));
  EXPECT_EQ(config->sliding_layers, config->rope_layers);
  EXPECT_EQ(config->window, 8192);
  EXPECT_TRUE(config->mixers.chunks && config->qk_rows_interleaved);
  EXPECT_EQ(config->mixers.temperature.step, 8192);
  EXPECT_EQ(config->mixers.temperature.offset, 1);
  const auto other = read_tuned(kLlama4, R"("attention_chunk_size": null, "moe_layers": [0],
    "no_rope_layers": [1, 0, 1, 0], "attn_temperature_tuning": 0)");
  EXPECT_EQ(other->sliding_layers, Flags(4, false));
  EXPECT_EQ(other->experts.dense_layers, (Flags{false, true, true, true}));
  EXPECT_EQ(other->rope_layers, (Flags{true, false, true, false}));
  EXPECT_EQ(other->mixers.temperature.scale, 0);
}

TEST(Llama4Family, QueriesOfMinistral3GrowWithTheOriginalContext) {
  const auto config = read_tuned(kMinistral3);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.temperature.scale, 0.25f);
  EXPECT_EQ(config->mixers.temperature.step, 64);
  EXPECT_EQ(config->window, 0);
  const auto inside =
      read_tuned(R"("architectures": ["Mistral3ForConditionalGeneration"], "text_config": {)" +
                 kMinistral3.substr(kMinistral3.find(R"("hidden_size")")) + "}");
  ASSERT_TRUE(inside.ok()) << inside.status().message();
  EXPECT_EQ(inside->mixers.temperature.scale, 0.25f);
}

TEST(Llama4Family, WhatDoesNotGoTogetherIsNamed) {
  const auto field = [](const std::string& members, const std::string& more) {
    return std::string(read_tuned(members, more).status().field());
  };
  EXPECT_EQ(field(kLlama4, R"("moe_layers": [4])"), "moe_layers");
  EXPECT_EQ(field(kLlama4, R"("moe_layers": 1)"), "moe_layers");
  EXPECT_EQ(field(kLlama4, R"("attention_chunk_size": 0)"), "attention_chunk_size");
  EXPECT_EQ(field(kLlama4, R"("layer_types": ["chunked_attention"])"), "layer_types");
  EXPECT_EQ(field(kLlama4, R"("layer_types": ["a", "a", "a", "a"])"), "layer_types");
  EXPECT_EQ(field(kLlama4, R"("floor_scale": 0)"), "floor_scale");
  EXPECT_EQ(field(kLlama4, R"("attn_scale": "a")"), "attn_scale");
  EXPECT_EQ(field(kLlama4, R"("num_experts_per_tok": 17)"), "num_experts_per_tok");
  EXPECT_EQ(field(kMinistral3, R"("rope_parameters": {"llama_4_scaling_beta": 1e9})"),
            "llama_4_scaling_beta");
}

}  // namespace
}  // namespace headrace::llama4_family_test
