#include "weights/model_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "weights/gguf_builder.h"

namespace headrace {
namespace {

constexpr std::string_view kLlamaConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
  "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
  "num_key_value_heads": 3, "rms_norm_eps": 1e-05, "rope_theta": 100000, "vocab_size": 49152,
  "max_position_embeddings": 8192, "tie_word_embeddings": true, "hidden_act": "silu",
  "rope_scaling": null, "attention_bias": false, "eos_token_id": 2})";

Result<ModelConfig> from_json(const Json& config, std::string_view generation = "null") {
  return model_config_from_json(config, *parse_json(generation), "config.json");
}
Json llama_config() { return *parse_json(kLlamaConfig); }

TEST(ModelConfig, FromGguf) {
  const std::string data = tiny_llama().build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto config = model_config_from_gguf(**file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "tiny");
  EXPECT_EQ(config->hidden, 32);
  EXPECT_EQ(config->layers, 1);
  EXPECT_EQ(config->heads, 2);
  EXPECT_EQ(config->kv_heads, 1);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->ffn, 64);
  EXPECT_EQ(config->vocab, 264);
  EXPECT_EQ(config->context_length, 128);
  EXPECT_EQ(config->rope_dim, 16);
  EXPECT_FLOAT_EQ(config->rms_eps, 1e-5f);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_TRUE(config->qk_rows_interleaved);
  EXPECT_EQ(config->end_ids, (std::vector<int32_t>{2}));
}

TEST(ModelConfig, GgufDefaultsAndSeparateOutput) {
  GgufBuilder builder = tiny_llama();
  builder.remove("llama.attention.head_count_kv")
      .remove("llama.rope.freq_base")
      .remove("llama.rope.dimension_count");
  builder.remove("llama.vocab_size").add_u32("llama.attention.key_length", 32);
  builder.add_u32("tokenizer.ggml.eot_token_id", 0).add_tensor("output.weight", {32, 264}, 0);
  const std::string data = builder.build();
  auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  auto config = model_config_from_gguf(**file);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->rope_dim, 32);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->vocab, 264);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_EQ(config->end_ids, (std::vector<int32_t>{0, 2}));
}

TEST(ModelConfig, FromJson) {
  auto config = from_json(llama_config(), R"({"eos_token_id": [2, 0]})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->hidden, 576);
  EXPECT_EQ(config->layers, 30);
  EXPECT_EQ(config->heads, 9);
  EXPECT_EQ(config->kv_heads, 3);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->ffn, 1536);
  EXPECT_EQ(config->vocab, 49152);
  EXPECT_EQ(config->context_length, 8192);
  EXPECT_EQ(config->rope_theta, 100000);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_FALSE(config->qk_rows_interleaved);
  EXPECT_EQ(config->end_ids, (std::vector<int32_t>{0, 2}));
}

TEST(ModelConfig, HeadDimNeedNotDivideHidden) {
  auto config = from_json(llama_config()
                              .set("head_dim", 128)
                              .set("rope_scaling", *parse_json(R"({"rope_type": "default"})")));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->rope_dim, 128);
}

struct BadField {
  const char* field;
  const char* value;  // JSON
  const char* expected;
};

TEST(ModelConfig, JsonErrorsNameFileAndField) {
  const BadField cases[] = {
      {"hidden_size", "0", "hidden_size: 0 is outside"},
      {"hidden_size", "-576", "hidden_size: -576 is outside"},
      {"hidden_size", "1e30", "hidden_size: is number, expected an integer"},
      {"hidden_size", "\"576\"", "hidden_size: is string, expected an integer"},
      {"hidden_size", "null", "hidden_size: missing"},
      {"hidden_size", "577", "num_attention_heads: 9 heads do not divide the hidden size 577"},
      {"num_hidden_layers", "1025", "num_hidden_layers: 1025 is outside 1 to 1024"},
      {"num_key_value_heads", "4", "num_key_value_heads: 4 key/value heads do not divide 9"},
      {"head_dim", "63", "head_dim: head size 63 is odd"},
      {"rms_norm_eps", "2", "rms_norm_eps: 2 is not between"},
      {"rms_norm_eps", "\"x\"", "rms_norm_eps: is string, expected a number"},
      {"rope_theta", "-1", "rope_theta: -1 is not between"},
      {"tie_word_embeddings", "1", "tie_word_embeddings: is integer, expected a boolean"},
      {"eos_token_id", "49152", "eos_token_id: 49152 is no id of a vocabulary of 49152"},
      {"eos_token_id", "[1, \"2\"]", "eos_token_id: is string, expected an integer or a list"},
      {"architectures", "[\"MambaForCausalLM\"]",
       "architectures: \"MambaForCausalLM\" is not supported"},
      {"architectures", "\"LlamaForCausalLM\"", "architectures: is no list of names"},
      {"architectures", "null", "architectures: missing"},
      {"hidden_act", "\"gelu\"", "hidden_act: only \"silu\""},
      {"rope_scaling", "{\"rope_type\": \"spiral\"}", "rope_scaling: rope type \"spiral\""},
      {"rope_scaling", "{\"type\": \"linear\", \"factor\": 0.5}",
       "rope_scaling: factor 0.5 is not"},
      {"rope_scaling", "{\"type\": \"longrope\"}", "short_factor: missing"},
      {"rope_scaling", "{\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]}",
       "rope_scaling: 1 factors for 32 frequencies"},
      {"rope_parameters", "{\"rope_type\": \"yarn\", \"beta_fast\": 0}", "rope_scaling: beta_fast"},
      {"rope_parameters", "{\"rope_theta\": -1}", "rope_theta: -1 is not between"},
      {"partial_rotary_factor", "1.5", "partial_rotary_factor: 1.5 is not between"},
      {"attention_bias", "1", "attention_bias: is integer, expected a boolean"},
      {"num_local_experts", "8", "num_local_experts: mixtures of experts"},
      {"sliding_window", "-5", "sliding_window: -5 is outside"},
  };
  for (const BadField& bad : cases) {
    const Status status = from_json(llama_config().set(bad.field, *parse_json(bad.value))).status();
    EXPECT_EQ(status.message().rfind(std::string("config.json: ") + bad.expected, 0), 0u)
        << bad.field << " " << bad.value << ": " << status.message();
  }
  EXPECT_EQ(from_json(Json(3)).status().message(), "config.json: config: is no JSON object");
}

TEST(ModelConfig, ReadsAFolder) {
  const std::filesystem::path folder = testing::TempDir() + "/model_config_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kLlamaConfig;
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": 7})";
  for (const auto& path : {folder, folder / "config.json"}) {
    auto config = model_config_from_file(path.string());
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->end_ids, (std::vector<int32_t>{2, 7}));
  }
  std::ofstream(folder / "generation_config.json") << "{";
  EXPECT_NE(
      model_config_from_file(folder.string()).status().message().find("generation_config.json"),
      std::string::npos);
  EXPECT_FALSE(model_config_from_file("/nowhere").ok());
}

}  // namespace
}  // namespace headrace
