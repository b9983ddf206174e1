#include "weights/lora_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "weights/gguf_fixture.h"
#include "weights/safetensors_fixture.h"

namespace headrace::lora_file_test {
namespace {

namespace fs = std::filesystem;

const std::string kPrefix = "base_model.model.";

class PeftFolder : public testing::Test {
 protected:
  PeftFolder() {
    fs::create_directories(path_);
    write("adapter_config.json", kConfig);
  }
  ~PeftFolder() override { fs::remove_all(path_); }

  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  // A [rank, in] and B [out, rank] of a module.
  static void add_pair(SafetensorsBuilder& builder, const std::string& name, int64_t rank = 2,
                       int64_t in = 3, int64_t out = 4) {
    builder.add_f32(kPrefix + name + ".lora_A.weight", {rank, in},
                    std::vector<float>(static_cast<size_t>(rank * in), 0.5f));
    builder.add_f32(kPrefix + name + ".lora_B.weight", {out, rank},
                    std::vector<float>(static_cast<size_t>(out * rank), 0.25f));
  }
  void write_pair(const std::string& name) {
    SafetensorsBuilder builder;
    add_pair(builder, name);
    write("adapter_model.safetensors", builder.build());
  }
  Result<LoraFile> read() const { return read_lora_file(path_.string(), llama_hf_names()); }
  // With `field` in place of nothing in the configuration.
  std::string error_of(const std::string& field) {
    std::string config = kConfig;
    config.insert(1, field + ", ");
    write("adapter_config.json", config);
    const auto file = read();
    return file.ok() ? "" : std::string(file.status().message());
  }
  std::string error() const {
    const auto file = read();
    return file.ok() ? "" : std::string(file.status().message());
  }

  static constexpr const char* kConfig =
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "bias": "none", "target_modules": "all-linear"})";
  static constexpr const char* kQuery = "model.layers.1.self_attn.q_proj";
  const fs::path path_ = fs::temp_directory_path() / ("lora_file_test." + std::to_string(getpid()));
};

TEST_F(PeftFolder, PairsHaveTheirMatricesAndScales) {
  SafetensorsBuilder builder;
  add_pair(builder, kQuery);
  add_pair(builder, "model.layers.0.mlp.down_proj", 3);
  write("adapter_model.safetensors", builder.build());
  EXPECT_NE(error().find("adapter_config.json says rank 2"), std::string::npos) << error();
  EXPECT_EQ(error_of(R"("rank_pattern": {"mlp.down_proj": 3}, "alpha_pattern": {"q_proj": 1})"),
            "");
  const auto file = read();
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->pairs.size(), 2u);
  EXPECT_FALSE(file->rows_as_gguf);
  const LoraPair* const query = file->find("blk.1.attn_q.weight");
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(query->module_name, kQuery);
  EXPECT_EQ(query->scale, 0.5f);
  EXPECT_EQ(query->a.shape, (Shape{2, 3}));
  EXPECT_EQ(query->b.shape, (Shape{4, 2}));
  EXPECT_EQ(file->find("blk.0.ffn_down.weight")->scale, 8.0f / 3);
  EXPECT_EQ(file->find("blk.0.attn_q.weight"), nullptr);
  EXPECT_NE(file->checksum(), 0u);
}

// Prefixes are shared by it: the same bytes as other numbers are another adapter.
TEST_F(PeftFolder, TheChecksumKnowsTheTypes) {
  const auto checksum_as = [&](std::string_view dtype) {
    SafetensorsBuilder builder;
    builder.add(kPrefix + kQuery + ".lora_A.weight", dtype, {2, 4}, std::string(16, '\x3c'));
    builder.add(kPrefix + kQuery + ".lora_B.weight", dtype, {4, 2}, std::string(16, '\x3c'));
    write("adapter_model.safetensors", builder.build());
    return read()->checksum();
  };
  EXPECT_EQ(checksum_as("F16"), checksum_as("F16"));
  EXPECT_NE(checksum_as("F16"), checksum_as("BF16"));
}

// A tool saves anew over the file of an adapter that a server is about to load.
TEST_F(PeftFolder, AFileThatIsWrittenAnewIsNotLookedAtAgain) {
  write_pair(kQuery);
  const auto file = read();
  ASSERT_TRUE(file.ok()) << file.status().message();
  const uint64_t before = file->checksum();
  fs::resize_file(path_ / "adapter_model.safetensors", 0);
  EXPECT_EQ(file->checksum(), before);
}

TEST_F(PeftFolder, RankStabilisedScalesByTheRoot) {
  write_pair(kQuery);
  EXPECT_EQ(error_of(R"("use_rslora": true)"), "");
  EXPECT_EQ(read()->pairs[0].scale, 8.0f / std::sqrt(2.0f));
  EXPECT_NE(error_of(R"("use_rslora": "yes")").find("must be true or false"), std::string::npos);
}

TEST_F(PeftFolder, APatternIsAWholeNameOrItsEnd) {
  write_pair(kQuery);
  const auto scale = [&](const std::string& key) {
    EXPECT_EQ(error_of(R"("alpha_pattern": {")" + key + R"(": 2})"), "");
    return read()->pairs[0].scale;
  };
  EXPECT_EQ(scale("q_proj"), 1.0f);
  EXPECT_EQ(scale("layers.1.self_attn.q_proj"), 1.0f);
  EXPECT_EQ(scale("^model.layers.1.self_attn.q_proj"), 1.0f);
  EXPECT_EQ(scale("^self_attn.q_proj"), 4.0f);
  EXPECT_EQ(scale("roj"), 4.0f);
  EXPECT_NE(error_of(R"("alpha_pattern": {".*q_proj": 2})").find("regular expression"),
            std::string::npos);
}

TEST_F(PeftFolder, WhatChangesMoreThanProductsIsRefusedByName) {
  write_pair(kQuery);
  for (const char* field : {R"("use_dora": true)", R"("modules_to_save": ["lm_head"])",
                            R"("fan_in_fan_out": true)", R"("lora_bias": true)",
                            R"("layer_replication": [[0, 1]])", R"("trainable_token_indices": [1])",
                            R"("target_parameters": ["x"])", R"("init_lora_weights": "pissa")"}) {
    const std::string message = error_of(field);
    const std::string name(field + 1, std::string(field).find('"', 1) - 1);
    EXPECT_NE(message.find(name), message.npos) << field << ": " << message;
    EXPECT_EQ(read().status().code(), StatusCode::kUnsupported) << field;
  }
  for (const char* field : {R"("use_dora": false)", R"("modules_to_save": null)",
                            R"("init_lora_weights": true)", R"("init_lora_weights": "gaussian")"}) {
    EXPECT_EQ(error_of(field), "") << field;
  }
}

TEST_F(PeftFolder, ConfigurationsThatAreNone) {
  write_pair(kQuery);
  for (const std::string text :
       {"", "[]", "{", R"({"r": 2, "lora_alpha": 8})", R"({"peft_type": "IA3"})",
        R"({"peft_type": "LORA", "lora_alpha": 8})",
        R"({"peft_type": "LORA", "r": 0, "lora_alpha": 8})",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": "x"})",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": -1})",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "rank_pattern": [1]})",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "bias": "all"})"}) {
    write("adapter_config.json", text);
    EXPECT_FALSE(read().ok()) << text;
    EXPECT_NE(error().find("adapter_config.json"), std::string::npos) << error();
  }
}

TEST_F(PeftFolder, TensorsThatAreNoPairs) {
  struct Case {
    std::string name;
    std::vector<int64_t> shape;
    std::string what;
  };
  const std::vector<Case> cases = {
      {std::string(kQuery) + ".lora_A.weight", {2, 3}, "lora_B is missing"},
      {std::string(kQuery) + ".lora_B.weight", {4, 2}, "lora_A is missing"},
      {std::string(kQuery) + ".lora_A.weight", {6}, "is no matrix"},
      {std::string(kQuery) + ".lora_magnitude_vector", {6}, "DoRA"},
      {"model.embed_tokens.lora_embedding_A", {2, 3}, "embeddings"},
      {"model.layers.0.self_attn.q_proj.base_layer.weight", {2, 3}, "only lora_A and lora_B"},
  };
  for (const Case& each : cases) {
    int64_t count = 1;
    for (const int64_t d : each.shape) count *= d;
    SafetensorsBuilder builder;
    builder.add_f32(kPrefix + each.name, each.shape,
                    std::vector<float>(static_cast<size_t>(count), 1.0f));
    write("adapter_model.safetensors", builder.build());
    EXPECT_NE(error().find(each.what), std::string::npos) << each.name << ": " << error();
  }
  SafetensorsBuilder ranks;
  ranks.add_f32(kPrefix + kQuery + ".lora_A.weight", {2, 3}, std::vector<float>(6));
  ranks.add_f32(kPrefix + kQuery + ".lora_B.weight", {4, 3}, std::vector<float>(12));
  write("adapter_model.safetensors", ranks.build());
  EXPECT_NE(error().find("their ranks differ"), std::string::npos) << error();
  write("adapter_model.safetensors", SafetensorsBuilder().build());
  EXPECT_FALSE(read().ok());
}

TEST_F(PeftFolder, ModulesThatTheModelHasNot) {
  for (const char* name : {"model.layers.0.self_attn.query", "transformer.h.0.attn",
                           "model.rotary_emb.inv_freq", "model.layers.99999999999.mlp.up_proj"}) {
    write_pair(name);
    EXPECT_NE(error().find(name), std::string::npos) << error();
  }
  write_pair("model.layers.0.block_sparse_moe.experts.1.w1");
  EXPECT_NE(error().find("experts"), std::string::npos) << error();
}

TEST_F(PeftFolder, FilesThatAreMissing) {
  EXPECT_NE(error().find("adapter_model.safetensors"), std::string::npos) << error();
  write("adapter_model.bin", "x");
  EXPECT_NE(error().find("there is only adapter_model.bin"), std::string::npos) << error();
  fs::remove(path_ / "adapter_config.json");
  EXPECT_NE(error().find("adapter_config.json"), std::string::npos) << error();
  const auto nowhere = read_lora_file((path_ / "nowhere").string(), llama_hf_names());
  EXPECT_EQ(nowhere.status().code(), StatusCode::kNotFound);
}

// Cut anywhere, it is refused.
TEST_F(PeftFolder, NoBeginningOfAFileIsAFile) {
  SafetensorsBuilder builder;
  add_pair(builder, kQuery);
  const std::string whole = builder.build();
  for (size_t length = 0; length < whole.size(); length += 7) {
    write("adapter_model.safetensors", whole.substr(0, length));
    EXPECT_FALSE(read().ok()) << length;
  }
}

std::string floats(size_t count, float value) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += raw(value);
  return bytes;
}

TEST_F(PeftFolder, GgufAdaptersAreAsLlamaCppWritesThem) {
  GgufBuilder builder;
  builder.add_text("general.architecture", "llama")
      .add_text("general.type", "adapter")
      .add_text("adapter.type", "lora")
      .add_f32("adapter.lora.alpha", 6);
  builder.tensors = {
      {.name = "blk.0.attn_q.weight.lora_a", .ne = {4, 2}, .type = 0, .data = floats(8, 1)},
      {.name = "blk.0.attn_q.weight.lora_b", .ne = {2, 3}, .type = 0, .data = floats(6, 2)},
  };
  const std::string path = (path_ / "adapter.gguf").string();
  write("adapter.gguf", builder.build());
  const auto file = read_lora_file(path, llama_hf_names());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->pairs.size(), 1u);
  EXPECT_TRUE(file->rows_as_gguf);
  EXPECT_EQ(file->pairs[0].tensor, "blk.0.attn_q.weight");
  EXPECT_EQ(file->pairs[0].a.shape, (Shape{2, 4}));
  EXPECT_EQ(file->pairs[0].b.shape, (Shape{3, 2}));
  EXPECT_EQ(file->pairs[0].scale, 3.0f);
  builder.remove("adapter.type").add_text("adapter.type", "control_vector");
  write("adapter.gguf", builder.build());
  EXPECT_FALSE(read_lora_file(path, llama_hf_names()).ok());
  builder.remove("general.type").add_text("general.type", "model");
  write("adapter.gguf", builder.build());
  EXPECT_NE(read_lora_file(path, llama_hf_names()).status().message().find("general.type"),
            std::string_view::npos);
}

}  // namespace
}  // namespace headrace::lora_file_test
