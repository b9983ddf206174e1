// Keys of a config.json that other classes read, and what a file leaves unsaid.
#include <gtest/gtest.h>

#include <string>

#include "weights/model_config.h"

namespace headrace::unread_keys_test {
namespace {

std::string text_of(const std::string& hf_class, const std::string& more) {
  return R"({"architectures": [")" + hf_class + R"("], "hidden_size": 64, "num_hidden_layers": 4,
      "intermediate_size": 48, "num_attention_heads": 4, "vocab_size": 96,
      "max_position_embeddings": 256)" +
         (more.empty() ? "" : ", " + more) + "}";
}

Result<ModelConfig> read(const std::string& hf_class, const std::string& more) {
  return model_config_from_json(parse_json(text_of(hf_class, more)).value(), Json(), "config.json");
}

ModelConfig config_of(const std::string& hf_class, const std::string& more) {
  auto config = read(hf_class, more);
  EXPECT_TRUE(config.ok()) << hf_class << ": " << config.status().message();
  return config.ok() ? *std::move(config) : ModelConfig{};
}

std::string error_of(const std::string& hf_class, const std::string& more) {
  const auto config = read(hf_class, more);
  EXPECT_FALSE(config.ok()) << hf_class;
  return config.ok() ? "" : std::string(config.status().message());
}

const std::string kHybrid =
    R"("num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"])";
constexpr const char* kSwitchOff = R"("num_key_value_heads": 4, "use_sliding_window": false)";

TEST(UnreadKeys, ASwitchOfQwensTakesNoWindow) {
  for (const char* name : {"FlintForCausalLM", "Kolibri1ForCausalLM"}) {
    EXPECT_EQ(config_of(name, kSwitchOff).window, 513) << name;
  }
  EXPECT_EQ(config_of("Lfm3ForCausalLM", kSwitchOff).window, 256);
}

TEST(UnreadKeys, AWindowIsOfClassesThatHaveOne) {
  const std::string window = R"("num_key_value_heads": 4, "sliding_window": 4)";
  for (const char* name :
       {"InternLM3ForCausalLM", "IQuestCoderForCausalLM", "SarvamMoEForCausalLM"}) {
    EXPECT_EQ(config_of(name, window).window, 0) << name;
  }
  EXPECT_EQ(config_of("Zamba2ForCausalLM", kHybrid + R"(, "sliding_window": 4)").window, 0);
  EXPECT_EQ(config_of("Qwen3VLForConditionalGeneration",
                      window + R"(, "head_dim": 16, "use_sliding_window": true)")
                .window,
            0);
  EXPECT_EQ(config_of("MistralForCausalLM", window).window, 4);
}

TEST(UnreadKeys, ListsOfOtherMixturesMeanNothing) {
  for (const char* list : {R"("mlp_only_layers": [0])", R"("decoder_sparse_step": 2)",
                           R"("moe_layer_interval": 2)", R"("moe_layer_end_index": 0)",
                           R"("mlp_layer_types": ["dense", "sparse", "sparse", "sparse"])"}) {
    for (const char* name : {"LongcatFlashForCausalLM", "Kolibri1ForCausalLM"}) {
      const ModelConfig config =
          config_of(name, R"("num_key_value_heads": 4, )" + std::string(list));
      for (int32_t i = 0; i < config.layers; ++i) {
        EXPECT_TRUE(config.experts.in_layer(i)) << name << " " << list;
      }
    }
  }
  EXPECT_FALSE(
      *config_of("LongcatFlashForCausalLM", R"("norm_topk_prob": true)").experts.normalised);
  EXPECT_EQ(error_of("Kolibri1ForCausalLM", R"("num_key_value_heads": 4, "num_experts": 0)"),
            "config.json: num_experts: 0 experts: each layer of this class has some");
}

TEST(UnreadKeys, LongCatHasWholeLayers) {
  EXPECT_EQ(config_of("LongcatFlashForCausalLM", "").layers, 2);
  const std::string text =
      R"({"architectures": ["LongcatFlashForCausalLM"], "hidden_size": 64, "num_hidden_layers": 1,
          "num_attention_heads": 4, "vocab_size": 96, "max_position_embeddings": 256})";
  const auto config = model_config_from_json(parse_json(text).value(), Json(), "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("num_hidden_layers: is not of 1 to"), std::string::npos);
}

TEST(UnreadKeys, AFilesOwnRotationReplacesAllThatIsAssumed) {
  const std::string name = "Mistral4ForCausalLM";
  EXPECT_EQ(config_of(name, "").rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(config_of(name, "").mixers.temperature.step, 8192);
  const ModelConfig plain = config_of(name, R"("rope_parameters": {"rope_theta": 1e4,
      "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 128})");
  EXPECT_EQ(plain.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(plain.mixers.temperature.step, 128);
  const ModelConfig yarn = config_of(
      name, R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4})");
  EXPECT_EQ(yarn.rope_scaling.original_context, 256);
  EXPECT_EQ(yarn.rope_scaling.mscale, 0);
  EXPECT_EQ(yarn.mixers.temperature.scale, 0);
  EXPECT_EQ(config_of("Ministral3ForCausalLM", R"("num_key_value_heads": 4, "rope_scaling": {
      "rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 128,
      "llama_4_scaling_beta": 0.1})")
                .mixers.temperature.scale,
            0.1f);
}

TEST(UnreadKeys, TextHalvesHaveBasesOfTheirOwn) {
  const std::string heads = R"("num_key_value_heads": 4)";
  EXPECT_EQ(config_of("Qwen2ForCausalLM", heads).rope_theta, 1e4);
  EXPECT_EQ(config_of("Qwen2VLForConditionalGeneration", heads).rope_theta, 1e6);
  EXPECT_EQ(config_of("Qwen2_5_VLForConditionalGeneration", heads).rope_theta, 1e6);
  EXPECT_EQ(config_of("Qwen3VLForConditionalGeneration", heads).rope_theta, 5e5);
}

TEST(UnreadKeys, NullSizesFollowFromOthers) {
  const ModelConfig config =
      config_of("InternLM3ForCausalLM", R"("head_dim": null, "num_key_value_heads": null)");
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.kv_heads, 4);
}

TEST(UnreadKeys, OthersOfSarvamAndZamba) {
  const std::string own = R"("num_key_value_heads": 4, "model_type": "sarvam_moe")";
  EXPECT_EQ(config_of("Glm4MoeForCausalLM", own).architecture, "sarvam-moe");
  EXPECT_TRUE(
      config_of("SarvamMoEForCausalLM", own + R"(, "use_qkv_bias": true, "use_bias": false)")
          .qkv_bias);
  const auto& space = config_of("Zamba2ForCausalLM", kHybrid + R"(, "time_step_limit": [0.0, 0.1])")
                          .mixers.state_space;
  EXPECT_EQ(space.dt_min, 0.001f);
  EXPECT_GT(space.dt_max, 1e6f);
}

}  // namespace
}  // namespace headrace::unread_keys_test
