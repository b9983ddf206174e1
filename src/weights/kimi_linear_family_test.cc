#include "weights/kimi_linear_family.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::kimi_linear_family_test {
namespace {

// A file of this class, with `more` beside its members or in their place.
Result<ModelConfig> read_kimi(const std::string& more = "") {
  Json config = parse_json(R"({"architectures": ["KimiLinearForCausalLM"], "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4, "vocab_size": 96,
    "head_dim": 72, "kv_lora_rank": 16, "q_lora_rank": null, "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8, "v_head_dim": 10, "num_experts": 8, "num_experts_per_token": 3,
    "model_max_length": 4096})")
                    .value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}

using enum LayerMixer;
using Mixers = std::vector<LayerMixer>;

TEST(KimiLinearFamily, EachFourthLayerAttendsWhereAFileIsSilent) {
  const auto config = read_kimi();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.by_layer,
            (Mixers{kKimiDelta, kKimiDelta, kKimiDelta, kKimiDelta, kAttention}));
  EXPECT_EQ(config->context_length, 4096);
  EXPECT_EQ(config->mixers.key_heads, 32);
  EXPECT_EQ(config->mixers.key_dim, 128);
  EXPECT_EQ(config->mixers.conv_taps, 4);
  EXPECT_EQ(config->mixers.latent.query_rank, 0);
  EXPECT_EQ(config->experts.dense_first, 1);
  EXPECT_EQ(config->experts.count, 8);
  EXPECT_EQ(config->experts.used, 3);
  EXPECT_TRUE(config->experts.normalised.value());
  EXPECT_EQ(config->experts.scores, ExpertScores::kSigmoid);
}

// As the hub has it, and as transformers 5 writes it.
TEST(KimiLinearFamily, LayersAndHeadsAreInAnObjectOrBesideIt) {
  const Mixers listed{kKimiDelta, kAttention, kKimiDelta, kKimiDelta, kAttention};
  const auto first = read_kimi(R"("linear_attn_config": {"full_attn_layers": [2, 5],
    "kda_layers": [1, 3, 4], "head_dim": 6, "num_heads": 3, "short_conv_kernel_size": 3},
    "moe_renormalize": false)");
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->mixers.by_layer, listed);
  const auto second = read_kimi(R"("layer_types": ["linear_attention", "full_attention",
    "linear_attention", "linear_attention", "full_attention"], "linear_head_dim": 6,
    "linear_num_heads": 3, "linear_conv_kernel_dim": 3, "moe_renormalize": false)");
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(second->mixers.by_layer, listed);
  for (const auto& config : {*first, *second}) {
    EXPECT_EQ(config.mixers.key_heads, 3);
    EXPECT_EQ(config.mixers.key_dim, 6);
    EXPECT_EQ(config.mixers.conv_taps, 3);
    EXPECT_FALSE(config.experts.normalised.value());
  }
}

TEST(KimiLinearFamily, RefusesWhatIsNotSupportedByItsField) {
  const auto expect = [](const std::string& more, const std::string& message) {
    const auto config = read_kimi(more);
    ASSERT_FALSE(config.ok()) << more;
    EXPECT_NE(config.status().message().find(message), std::string::npos)
        << config.status().message();
  };
  expect(R"("mla_use_nope": false)", "mla_use_nope: layers that rotate");
  expect(R"("moe_router_activation_func": "softmax")", "moe_router_activation_func: only");
  expect(R"("layer_types": ["full_attention"])", "layer_types: is no list of 5 names");
  expect(R"("layer_types": ["full_attention", "a", "b", "c", "d"])", "layer_types: has a layer");
  expect(R"("linear_attn_config": {"full_attn_layers": [0]})",
         "linear_attn_config.full_attn_layers: has what is none of 5 layers");
  expect(R"("linear_attn_config": {"full_attn_layers": 3})",
         "linear_attn_config.full_attn_layers: is no list");
  expect(R"("linear_attn_config": {"head_dim": 0})", "linear_attn_config.head_dim: is no number");
}

Result<ModelConfig> read_ling3(const std::string& more = "") {
  return read_kimi(R"("architectures": ["BailingHybridForCausalLM"], "num_hidden_layers": 7)" +
                   more);
}

TEST(Ling3, TheLastLayerOfEachGroupAttends) {
  const auto config = read_ling3(R"(, "layer_group_size": 3)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.by_layer, (Mixers{kKimiDelta, kKimiDelta, kAttention, kKimiDelta,
                                             kKimiDelta, kAttention, kKimiDelta}));
  EXPECT_EQ(config->mixers.key_heads, 4);
  EXPECT_EQ(config->mixers.key_dim, 72);
  EXPECT_EQ(config->mixers.delta.decay_floor, -5);
  EXPECT_EQ(config->experts.groups, 8);
  // As transformers writes it: a head's size is what rotates of it.
  const auto written =
      read_ling3(R"(, "head_dim": 8, "linear_head_dim": 24, "kda_safe_gate": false)");
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(written->mixers.key_dim, 24);
  EXPECT_EQ(written->mixers.delta.decay_floor, 0);
  // By the names that the class takes too.
  const auto other = read_ling3(
      R"(, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "n_shared_experts": 2)");
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->experts.used, 2);
  EXPECT_EQ(other->experts.groups, 2);
  EXPECT_EQ(other->experts.shared_count, 2);
}

TEST(Ling3, RefusesWhatIsNotSupportedByItsField) {
  for (const auto& [more, message] :
       {std::pair(R"(, "no_kda_lora": false)", "no_kda_lora: is not supported, only true or none"),
        {R"(, "layer_group_size": 0)", "layer_group_size: is no number from 1 to 1024"},
        {R"(, "kda_safe_gate": 0)", "kda_safe_gate: is integer, expected a boolean"},
        {R"(, "moe_renormalize": 0)", "moe_renormalize: is integer, expected a boolean"},
        {R"(, "expert_swiglu_limit_list": [7.0])",
         "expert_swiglu_limit_list: is not supported, only null or none"},
        {R"(, "gated_attention_proj_granularity_type": "element_wise")",
         "gated_attention_proj_granularity_type: only \"head_wise\" is supported"}}) {
    const auto config = read_ling3(more);
    ASSERT_FALSE(config.ok()) << more;
    EXPECT_EQ(config.status().message(), std::string("config.json: ") + message);
  }
}

}  // namespace
}  // namespace headrace::kimi_linear_family_test
