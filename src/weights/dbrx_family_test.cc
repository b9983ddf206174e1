#include "weights/dbrx_family.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::dbrx_family_test {
namespace {

Result<ModelConfig> read_dbrx_of(const std::string& attention, const std::string& networks) {
  const std::string text = R"({"architectures": ["DbrxForCausalLM"], "d_model": 32, "n_heads": 4,
      "n_layers": 2, "max_seq_len": 64, "vocab_size": 96, "attn_config": )" +
                           attention + R"(, "ffn_config": )" + networks + "}";
  return model_config_from_json(parse_json(text).value(), Json(), "config.json");
}

TEST(DbrxFamily, NumbersLieInObjects) {
  const auto config =
      read_dbrx_of(R"({"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 5e5})",
                   R"({"ffn_hidden_size": 24, "moe_num_experts": 6, "moe_top_k": 3})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->mixers.head_sizes.qkv_clamp, 8);
  EXPECT_EQ(config->rope_theta, 5e5);
  EXPECT_EQ(config->experts.count, 6);
  EXPECT_EQ(config->experts.used, 3);
  EXPECT_EQ(config->experts.width, 24);
  EXPECT_TRUE(config->experts.normalised.value());
  const auto plain = read_dbrx_of("null", R"({"moe_normalize_expert_weights": null})");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->mixers.head_sizes.qkv_clamp, 0);
  EXPECT_FALSE(plain->experts.normalised.value());
}

TEST(DbrxFamily, RefusesWhatIsNotSupportedByItsField) {
  const auto error_of = [](const std::string& attention, const std::string& networks) {
    return std::string(read_dbrx_of(attention, networks).status().message());
  };
  EXPECT_EQ(error_of("{}", R"({"moe_normalize_expert_weights": 2.0})"),
            "config.json: moe_normalize_expert_weights: 2 is not supported, only 1 or null");
  EXPECT_EQ(error_of("{}", R"({"ffn_act_fn": {"name": "gelu"}})"),
            "config.json: ffn_act_fn: only \"silu\" is supported");
  EXPECT_EQ(error_of(R"({"clip_qkv": -1})", "{}"),
            "config.json: clip_qkv: is no number from 0 to 1000000");
  EXPECT_EQ(error_of(R"({"clip_qkv": 0})", "{}"),
            "config.json: clip_qkv: 0 leaves nothing: only null or more than 0");
  EXPECT_EQ(error_of("3", "{}"), "config.json: attn_config: is no object");
}

}  // namespace
}  // namespace headrace::dbrx_family_test
