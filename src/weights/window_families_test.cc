// What files of MiMo V2 Flash and Laguna say of layers beside numbers of one name.
#include "weights/window_families.h"

#include <gtest/gtest.h>

#include <string>

#include "weights/gguf_fixture.h"

namespace headrace::window_families_test {
namespace {

Result<ModelConfig> config_of(const std::string& hf_class, const std::string& more) {
  const std::string text = R"({"architectures": [")" + hf_class + R"("], "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 7, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 96)" +
                           more + "}";
  return model_config_from_json(parse_json(text).value(), Json(), "config.json");
}

std::string error_of(const std::string& hf_class, const std::string& more) {
  const auto config = config_of(hf_class, more);
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : std::string(config.status().message());
}

using Layers = std::vector<bool>;
const std::string kMiMo = "MiMoV2FlashForCausalLM", kLaguna = "LagunaForCausalLM";

TEST(WindowFamilies, MiMoSlidesInAllButEachSixthLayer) {
  const auto config = config_of(kMiMo, "");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->sliding_layers, Layers({false, true, true, true, true, false, true}));
  EXPECT_EQ(config->window, 129);
  EXPECT_EQ(config->experts.dense_first, 1);
  EXPECT_EQ(config->rope_dim, 64);
  EXPECT_EQ(config->mixers.head_sizes.sliding_rope_dim, 64);
  EXPECT_EQ(config->mixers.head_sizes.sliding_kv_heads, 4);
  EXPECT_EQ(config->mixers.head_sizes.value_dim, 128);
  EXPECT_FLOAT_EQ(config->mixers.head_sizes.value_scale, 0.707f);
}

TEST(WindowFamilies, MiMoOfTheHubHasOtherNames) {
  const auto config = config_of(kMiMo, R"(, "hybrid_layer_pattern": [0, 1, 1, 0, 1, 1, 1],
      "moe_layer_freq": [0, 0, 1, 1, 1, 1, 1], "swa_num_key_value_heads": 1, "swa_rope_theta": 500,
      "sliding_window": 8, "sliding_window_size": 8, "routed_scaling_factor": null,
      "attention_value_scale": null, "partial_rotary_factor": 0.5, "scoring_func": "sigmoid",
      "add_swa_attention_sink_bias": true, "swa_v_head_dim": 128, "n_shared_experts": null)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->sliding_layers, Layers({false, true, true, false, true, true, true}));
  EXPECT_EQ(config->experts.dense_first, 2);
  EXPECT_EQ(config->mixers.head_sizes.sliding_kv_heads, 1);
  EXPECT_EQ(config->mixers.head_sizes.value_scale, 1);
  EXPECT_EQ(config->mixers.head_sizes.sliding_rope_dim, 96);
  EXPECT_EQ(config->rope_theta_local, 500);
  EXPECT_EQ(config->window, 9);
  EXPECT_EQ(config->experts.scale, 1);
}

TEST(WindowFamilies, WhatMiMoDoesNotHaveIsRefusedByName) {
  EXPECT_EQ(error_of(kMiMo, R"(, "add_full_attention_sink_bias": true)"),
            "config.json: add_full_attention_sink_bias: is not supported, only false or none");
  EXPECT_EQ(error_of(kMiMo, R"(, "swa_head_dim": 64)"),
            "config.json: swa_head_dim: is not supported, only 192 or none");
  EXPECT_EQ(error_of(kMiMo, R"(, "swa_num_key_value_heads": 3)"),
            "config.json: num_key_value_heads: 3 key/value heads of layers that slide do not "
            "divide 4 query heads");
  EXPECT_EQ(error_of(kMiMo, R"(, "moe_layer_freq": [0, 1, 0, 1, 1, 1, 1])"),
            "config.json: moe_layer_freq: dense layers behind mixtures are not supported");
  EXPECT_EQ(error_of(kMiMo, R"(, "hybrid_layer_pattern": [0, 1])"),
            "config.json: hybrid_layer_pattern: is no list of 7 flags");
  EXPECT_EQ(error_of(kMiMo, R"(, "rope_parameters": {"sliding_attention":
      {"rope_theta": 1e4, "partial_rotary_factor": 0.111}})"),
            "config.json: partial_rotary_factor: 21 rotated dimensions of layers that slide: must "
            "be even and at most the head size 192");
}

TEST(WindowFamilies, LagunasLayersHaveHeadsOfTheirOwn) {
  const auto config =
      config_of(kLaguna, R"(, "num_attention_heads_per_layer": [4, 6, 6, 6, 4, 6, 6])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.head_sizes.queries, std::vector<int32_t>({4, 6, 6, 6, 4, 6, 6}));
  EXPECT_TRUE(config->mixers.head_sizes.gates_of_heads);
  EXPECT_EQ(config->window, 0);  // no layer slides
  EXPECT_EQ(config->rope_dim, 64);
  EXPECT_FALSE(
      config_of(kLaguna, R"(, "gating": "per-element")")->mixers.head_sizes.gates_of_heads);
  EXPECT_EQ(error_of(kLaguna, R"(, "gating": false)"),
            "config.json: gating: is not supported (known: true, \"per-head\", \"per-element\")");
  EXPECT_EQ(error_of(kLaguna, R"(, "moe_router_logit_softcapping": 30.0)"),
            "config.json: moe_router_logit_softcapping: is not supported, only 0 or none");
  EXPECT_EQ(error_of(kLaguna, R"(, "moe_apply_router_weight_on_input": true)"),
            "config.json: moe_apply_router_weight_on_input: is not supported, only false or none");
  EXPECT_EQ(error_of(kLaguna, R"(, "num_attention_heads_per_layer": [4, 6, 6, 6, 4, 6, 5])"),
            "config.json: num_attention_heads_per_layer: 5 is no number of query heads of 2 "
            "key/value heads");
}

const std::string kStep = "Step3p5ForCausalLM";

// Seven layers and one that drafts.
TEST(WindowFamilies, StepOfTheHubListsALayerThatDrafts) {
  const auto config = config_of(kStep, R"(, "num_nextn_predict_layers": 1, "sliding_window": 8,
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
      "sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
      "full_attention"], "rope_theta": [5e6, 1e4, 1e4, 1e4, 5e6, 1e4, 1e4, 7],
      "partial_rotary_factors": [0.5, 1, 1, 1, 0.5, 1, 1, 0.5], "moe_layers_enum": "2, 4,6,7,",
      "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0,
      "high_freq_factor": 32.0, "original_max_position_embeddings": 64},
      "yarn_only_types": ["full_attention"], "moe_num_experts": 9, "moe_top_k": 3,
      "share_expert_dims": 40, "attention_other_setting": {"attention_type": "sliding_attention",
      "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 128},
      "use_rope_layers": [true, true], "zero_centered": true, "use_qk_norm": false,
      "swiglu_limits": [0, 0.0, 7, null, 0, 0, 16.0, 1], "swiglu_limits_shared": [0, 0, 0, 0, 0,
      0, 0, 1])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->sliding_layers, Layers({false, true, true, true, false, true, true}));
  EXPECT_EQ(config->mixers.head_sizes.queries, std::vector<int32_t>({4, 6, 6, 6, 4, 6, 6}));
  EXPECT_TRUE(config->mixers.head_sizes.gates_of_heads);
  EXPECT_EQ(config->rope_theta, 5e6);
  EXPECT_EQ(config->rope_theta_local, 1e4);
  EXPECT_EQ(config->rope_dim, 64);
  EXPECT_EQ(config->mixers.head_sizes.sliding_rope_dim, 128);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(config->experts.dense_first, 0);
  EXPECT_EQ(config->experts.dense_layers, Layers({true, true, false, true, false, true, false}));
  EXPECT_EQ(config->experts.count, 9);
  EXPECT_EQ(config->experts.used, 3);
  EXPECT_EQ(config->experts.shared_width, 40);
  EXPECT_EQ(config->experts.limits, std::vector<float>({0, 0, 7, 0, 0, 0, 16}));
  EXPECT_TRUE(config->experts.whole_limits.empty());
}

TEST(WindowFamilies, StepOfTheLibraryNamesKindsOfLayers) {
  const std::string layers = R"(, "sliding_window": 8, "layer_types": ["full_attention",
      "sliding_attention", "sliding_attention", "full_attention", "full_attention",
      "full_attention", "full_attention"], "num_sliding_attention_heads": 6,
      "per_layer_config": {"1": {"num_attention_heads": 6}, "2": {"num_attention_heads": )";
  const std::string rotations = R"(}}, "rope_parameters": {"full_attention": {"rope_theta": 5e6,
      "partial_rotary_factor": 0.25}, "sliding_attention": {"rope_theta": 1e4}})";
  const auto config = config_of(kStep, layers + "6" + rotations + R"(, "moe_layers_enum": [4],
      "mlp_layer_types": ["dense", "dense", "sparse", "dense", "dense", "dense", "sparse"])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.head_sizes.queries, std::vector<int32_t>({4, 6, 6, 4, 4, 4, 4}));
  EXPECT_EQ(config->rope_dim, 32);
  EXPECT_EQ(config->mixers.head_sizes.sliding_rope_dim, 128);
  EXPECT_EQ(config->experts.dense_layers, Layers({true, true, false, true, true, true, false}));
  EXPECT_EQ(error_of(kStep, layers + "4" + rotations),
            "config.json: per_layer_config: layer 2 differs in more than "
            "num_sliding_attention_heads");
  EXPECT_EQ(error_of(kStep, layers + R"(6}}, "rope_parameters": {"full_attention": {}})"),
            "config.json: rope_parameters: has no object sliding_attention");
}

// What the library takes where a file does not say it.
TEST(WindowFamilies, AStepThatSaysNothingSeesAll) {
  const auto config = config_of(kStep, R"(, "sliding_window": 8)");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->window, 0);
  EXPECT_EQ(config->context_length, 128000);
  EXPECT_EQ(config->rope_theta, 1e4);
  EXPECT_EQ(config->rope_dim, 128);
  EXPECT_EQ(config->experts.count, 288);
  EXPECT_EQ(config->experts.shared_width, 1280);
  EXPECT_EQ(config->experts.scale, 1);
  EXPECT_EQ(config->experts.dense_first, 3);
  EXPECT_TRUE(config->experts.limits.empty());
}

TEST(WindowFamilies, WhatStepDoesNotHaveIsRefusedByName) {
  const std::string slides = R"(, "layer_types": ["full_attention", "sliding_attention",
      "sliding_attention", "full_attention", "full_attention", "full_attention",
      "full_attention"])";
  EXPECT_EQ(error_of(kStep, slides), "config.json: sliding_window: missing");
  const std::string windows = slides + R"(, "sliding_window": 8)";
  const struct {
    const char *more, *error;
  } kWrong[] = {
      {R"(, "attention_other_setting": {"num_attention_groups": 1})",
       "num_attention_groups: is not supported, only 2 or none"},
      {R"(, "attention_other_setting": {"head_dim": 64})",
       "head_dim: is not supported, only 128 or none"},
      {R"(, "attention_other_setting": 6)", "attention_other_setting: is no object"},
      {R"(, "num_sliding_attention_heads": 5)",
       "num_sliding_attention_heads: 5 is no number of query heads of 2 key/value heads"},
      {R"(, "rope_theta": [5e6, 1e4, 1e4, 5e6, 5e6, 5e6, 1e4])",
       "rope_theta: 5000000 and 10000 of layers of one type are not supported"},
      {R"(, "rope_theta": [5e6, 1e4])", "rope_theta: 2 entries for 7 layers"},
      {R"(, "partial_rotary_factors": [1, 2, 2, 1, 1, 1, 1])",
       "partial_rotary_factors: 2 is not between 0 and 1"},
      {R"(, "partial_rotary_factor": 0.5)",
       "partial_rotary_factor: is not supported, only partial_rotary_factors"},
      {R"(, "moe_layers_enum": "1,two")", "moe_layers_enum: is no list of numbers of layers"},
      {R"(, "swiglu_limits": [0, 0, 0, 0, 0, 0, -1])",
       "swiglu_limits: has what is no limit from 0 to 1e6"},
      {R"(, "use_rope_layers": [true, false])",
       "use_rope_layers: is not supported, only true of each layer"},
      {R"(, "gating": "per-element")", "gating: is not supported (known: true, \"per-head\")"},
      {R"(, "zero_centered": false)", "zero_centered: is not supported, only true or none"},
      {R"(, "mlp_bias": true)", "mlp_bias: is not supported, only false or none"},
      {R"(, "num_local_experts": 8)",
       "num_local_experts: mixtures of experts of this class are not supported"}};
  for (const auto& wrong : kWrong) {
    EXPECT_EQ(error_of(kStep, windows + wrong.more), std::string("config.json: ") + wrong.error);
  }
}

Result<ModelConfig> config_of(const GgufBuilder& builder) {
  const std::string data = builder.build();
  HR_ASSIGN_OR_RETURN(
      const auto file,
      GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf"));
  return model_config_from_gguf(*file);
}

// Three layers and one that drafts.
GgufBuilder gguf_of(const std::string& architecture) {
  GgufBuilder builder;
  builder.add_text("general.architecture", architecture);
  const auto key = [&](const char* name) { return architecture + "." + name; };
  builder.add_u32(key("embedding_length"), 32).add_u32(key("feed_forward_length"), 48);
  builder.add_u32(key("context_length"), 64).add_u32(key("attention.key_length"), 16);
  builder.add_u32(key("attention.sliding_window"), 8).add_f32(key("rope.freq_base_swa"), 500);
  builder.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  builder.add_u32(key("expert_count"), 4).add_u32(key("expert_used_count"), 2);
  builder.add_u32(key("expert_feed_forward_length"), 24);
  builder.add_tensor("token_embd.weight", {32, 96}, 0);
  builder.add_tensor("blk.1.ffn_gate_inp.weight", {32, 4}, 0);
  builder.add_tensor("blk.2.ffn_gate_inp.weight", {32, 4}, 0);
  return builder;
}

TEST(WindowFamilies, AGgufFileOfMiMoListsKeyHeads) {
  GgufBuilder builder = gguf_of("mimo2");
  builder.add_u32("mimo2.block_count", 4).add_u32("mimo2.nextn_predict_layers", 1);
  builder.add_u32("mimo2.attention.head_count", 4).add_u32("mimo2.rope.dimension_count", 8);
  builder.add_u32("mimo2.attention.value_length", 10);
  builder.add_u32("mimo2.expert_group_count", 2).add_u32("mimo2.expert_group_used_count", 1);
  builder.add_ints("mimo2.attention.head_count_kv", {1, 2, 1, 2});
  builder.add_ints("mimo2.attention.sliding_window_pattern", {0, 1, 0, 1});
  const auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layers, 3);
  EXPECT_EQ(config->kv_heads, 1);
  EXPECT_EQ(config->mixers.head_sizes.sliding_kv_heads, 2);
  EXPECT_EQ(config->mixers.head_sizes.value_dim, 10);
  EXPECT_EQ(config->mixers.head_sizes.value_scale, 1);
  EXPECT_EQ(config->experts.dense_layers, Layers({true, false, false}));
  EXPECT_EQ(config->experts.groups, 2);
  builder.remove("mimo2.attention.head_count_kv");
  builder.add_ints("mimo2.attention.head_count_kv", {1, 2, 2, 2});
  EXPECT_EQ(config_of(builder).status().message(),
            "t.gguf: mimo2.attention.head_count_kv: layers of 1 and of 2 heads");
}

TEST(WindowFamilies, AGgufFileOfLagunaListsQueryHeads) {
  GgufBuilder builder = gguf_of("laguna");
  builder.add_u32("laguna.block_count", 3).add_u32("laguna.attention.head_count_kv", 2);
  builder.add_ints("laguna.attention.head_count", {4, 6, 6});
  builder.add_u32("laguna.rope.dimension_count", 8).add_u32("laguna.rope.dimension_count_swa", 16);
  builder.add_u32("laguna.leading_dense_block_count", 1);
  builder.add_tensor("blk.0.attn_gate.weight", {32, 4}, 0);
  const auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->mixers.head_sizes.queries, std::vector<int32_t>({4, 6, 6}));
  EXPECT_TRUE(config->mixers.head_sizes.gates_of_heads);
  EXPECT_EQ(config->sliding_layers, Layers({false, true, true}));
  EXPECT_EQ(config->mixers.head_sizes.sliding_rope_dim, 16);
  EXPECT_EQ(config->experts.scores, ExpertScores::kSigmoid);
  builder.remove("laguna.attention.head_count_kv");
  EXPECT_NE(config_of(builder).status().message().find("laguna.attention.head_count"),
            std::string::npos);
}

TEST(WindowFamilies, AGgufFileOfStepListsHeadsAndLimits) {
  GgufBuilder builder = gguf_of("step35");
  builder.add_u32("step35.block_count", 4).add_u32("step35.nextn_predict_layers", 1);
  builder.add_ints("step35.attention.head_count", {4, 6, 6, 4});
  builder.add_ints("step35.attention.head_count_kv", {2, 2, 2, 2});
  builder.add_ints("step35.attention.sliding_window_pattern", {0, 1, 1, 0});
  builder.add_ints("step35.swiglu_clamp_exp", {0, 0, 7, 0});
  builder.add_ints("step35.swiglu_clamp_shexp", {0, 0, 0, 16});
  const auto config = config_of(builder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layers, 3);
  EXPECT_EQ(config->mixers.head_sizes.queries, std::vector<int32_t>({4, 6, 6}));
  EXPECT_TRUE(config->mixers.head_sizes.gates_of_heads);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->sliding_layers, Layers({false, true, true}));
  EXPECT_EQ(config->rope_dim, 8);
  EXPECT_EQ(config->mixers.head_sizes.sliding_rope_dim, 16);
  EXPECT_EQ(config->rope_theta_local, 500);
  EXPECT_EQ(config->experts.dense_layers, Layers({true, false, false}));
  EXPECT_EQ(config->experts.scores, ExpertScores::kSigmoid);
  EXPECT_EQ(config->experts.limits, std::vector<float>({0, 0, 7}));
  EXPECT_TRUE(config->experts.whole_limits.empty());
  builder.remove("step35.swiglu_clamp_exp");
  builder.add_ints("step35.swiglu_clamp_exp", {0, 7});
  EXPECT_EQ(config_of(builder).status().message(),
            "t.gguf: step35.swiglu_clamp_exp: is no list of 3 limits");
  builder.remove("step35.attention.head_count_kv");
  builder.add_ints("step35.attention.head_count_kv", {2, 2, 1, 2});
  EXPECT_EQ(config_of(builder).status().message(),
            "t.gguf: step35.attention.head_count_kv: layers of 2 and of 1 heads");
}

TEST(WindowFamilies, Lfm3sLayersConvolveSlideOrSeeAll) {
  const std::string name = "Lfm3ForCausalLM";
  const auto silent = config_of(name, "");
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_EQ(silent->sliding_layers, Layers({false, false, false, false, true, false, false}));
  EXPECT_EQ(silent->mixers.of(2), LayerMixer::kAttention);
  EXPECT_EQ(silent->mixers.of(3), LayerMixer::kShortConv);
  EXPECT_EQ(silent->mixers.gemma.full_rotated, 0.5);
  EXPECT_TRUE(silent->mixers.post_norms && silent->mixers.gated_attention);
  EXPECT_EQ(silent->mixers.conv_taps, 7);
  const auto config = config_of(name, R"(, "use_sandwich_norm": false, "use_attention_gate": false,
      "layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention", "conv",
      "conv"], "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500},
      "sliding_attention": {"rope_type": "default", "rope_theta": 50}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->mixers.post_norms || config->mixers.gated_attention);
  EXPECT_EQ(config->mixers.gemma.full_rotated, 1);
  EXPECT_EQ(config->rope_theta_local, 50);
  EXPECT_EQ(error_of(name, R"(, "layer_types": ["conv"])"),
            "config.json: layer_types: is no list of 7 names");
  EXPECT_EQ(error_of(name, R"(, "layer_types": ["conv", "conv", "conv", "conv", "conv", "conv",
      "linear_attention"])"),
            "config.json: layer_types: has a layer that is not supported (known: conv, "
            "full_attention, sliding_attention)");
  EXPECT_EQ(error_of(name, R"(, "rope_parameters": {"rope_theta": 500})"),
            "config.json: rope_parameters: has no object full_attention");
  EXPECT_EQ(error_of(name, R"(, "rope_parameters": {"full_attention": {"rope_type": "default",
      "partial_rotary_factor": 0.5}, "sliding_attention": {}})"),
            "config.json: partial_rotary_factor: is not supported without rope_type "
            "\"proportional\"");
}

TEST(WindowFamilies, FlintSeesAllAtItsEnds) {
  const auto silent = config_of("FlintForCausalLM", "");
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_EQ(silent->sliding_layers, Layers({false, false, true, true, true, false, false}));
  EXPECT_EQ(silent->experts.dense_first, 2);
  const auto config = config_of("FlintForCausalLM", R"(, "mlp_only_layers": [1])");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->experts.dense_first, 0);
  EXPECT_EQ(config->experts.dense_layers, Layers({false, true, false, false, false, false, false}));
}

TEST(WindowFamilies, KolibrisBiasIsOfLogits) {
  const auto config = config_of("Kolibri1ForCausalLM", "");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->experts.biases_logits);
  EXPECT_FALSE(config->experts.normalised.value_or(true));
  EXPECT_EQ(config->window, 513);
}

}  // namespace
}  // namespace headrace::window_families_test
