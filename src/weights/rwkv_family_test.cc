#include "weights/rwkv_family.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::rwkv_family_test {
namespace {

// A file of a class's members, and of `more` in their place.
Result<ModelConfig> read_rwkv_config(const std::string& more = "") {
  Json config = parse_json(R"({"architectures": ["RWKV7ForCausalLM"], "hidden_size": 128,
    "num_hidden_layers": 2, "vocab_size": 100, "head_dim": 64, "hidden_act": "sqrelu",
    "intermediate_size": null, "decay_low_rank_dim": 8, "attn": null, "norm_eps": 1e-5})")
                    .value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}

TEST(RwkvFamily, SizesThatAFileLeavesToTheClass) {
  const auto config = read_rwkv_config(R"("hidden_ratio": 3.9, "value_dim": [128, 128])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const RwkvConfig& rwkv = config->mixers.rwkv;
  EXPECT_EQ(rwkv.decay_rank, 8);
  EXPECT_EQ(rwkv.rate_rank, 32);
  EXPECT_EQ(rwkv.value_rank, 32);
  EXPECT_EQ(rwkv.gate_rank, 64);
  EXPECT_FLOAT_EQ(rwkv.norm_eps, 64e-5f);
  EXPECT_EQ(config->ffn, 512);  // 499 in steps of 32
  EXPECT_TRUE(has_states(*config) && !any_attends(*config));
  EXPECT_EQ(read_rwkv_config()->ffn, 512);
  EXPECT_EQ(read_rwkv_config(R"("head_dim": null, "num_heads": 4)")->mixers.rwkv.head_dim, 32);
}

TEST(RwkvFamily, WhatIsNotSupportedIsRefusedByItsName) {
  for (const auto& [member, name] : {std::pair(R"("norm_first": false)", "norm_first"),
                                     {R"("norm_bias": false)", "norm_bias"},
                                     {R"("attn": {"layers": [1]})", "attn"},
                                     {R"("value_dim": 96)", "value_dim"},
                                     {R"("hidden_act": "silu")", "hidden_act"},
                                     {R"("head_dim": 48)", "head_dim"},
                                     {R"("head_dim": null)", "head_dim"},
                                     {R"("head_dim": null, "num_heads": 3)", "num_heads"},
                                     {R"("hidden_ratio": -1)", "hidden_ratio"}}) {
    const auto config = read_rwkv_config(member);
    ASSERT_FALSE(config.ok()) << member;
    EXPECT_NE(config.status().message().find(name), std::string::npos) << config.status().message();
  }
}

}  // namespace
}  // namespace headrace::rwkv_family_test
