#include "apps/inspect.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/json.h"
#include "stack/model_stack.h"
#include "weights/gguf_fixture.h"
#include "weights/safetensors_fixture.h"

namespace headrace::inspect_test {
namespace {

std::string write(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Inspect, ShowsWhatAFileHolds) {
  const auto text = inspect_model(write("tiny.gguf", tiny_llama().build()), {.tensors = true});
  ASSERT_TRUE(text.ok()) << text.status().message();
  for (const char* part :
       {"architecture   llama", "context        128 tokens", "runs here      yes",
        "blk.0.ffn_down.weight", "264 tokens, 4 merges", "64 bytes a token"}) {
    EXPECT_NE(text->find(part), std::string::npos) << part << "\n" << *text;
  }
  EXPECT_FALSE(inspect_model("/nowhere.gguf").ok());
}

TEST(Inspect, NamesWhatStandsInTheWay) {
  GgufBuilder builder = tiny_llama();
  builder.replace("general.architecture", GgufValueType::kString, raw_string("rwkv"));
  const std::string path = write("rwkv.gguf", builder.build());
  const auto json = inspect_model(path, {.json = true});
  ASSERT_TRUE(json.ok()) << json.status().message();
  const auto report = parse_json(*json);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->find("supported")->as_bool());
  const Json::Array& problems = report->find("problems")->as_array();
  ASSERT_EQ(problems.size(), 1u) << *json;
  EXPECT_EQ(problems[0].as_string().rfind(
                path + ": general.architecture: \"rwkv\" is not supported (known: ", 0),
            0u)
      << problems[0].as_string();
}

// ---- inspect and a load refuse in the same words ------------------------------------------------

std::vector<std::string> problems_of(const std::string& path) {
  const auto json = inspect_model(path, {.json = true});
  EXPECT_TRUE(json.ok()) << json.status().message();
  std::vector<std::string> problems;
  if (!json.ok()) return problems;
  const Json report = *parse_json(*json);
  for (const Json& problem : report.find("problems")->as_array()) {
    problems.push_back(problem.as_string());
  }
  EXPECT_EQ(report.find("supported")->as_bool(), problems.empty());
  return problems;
}

std::string refusal_of(const std::string& path) {
  return ModelStack::load({.model = path, .device = {.threads = 1}}).status().message();
}

// Both say `part`, and the load's whole message is the first of inspect's.
void expect_agreement(const std::string& path, std::string_view part) {
  const std::vector<std::string> problems = problems_of(path);
  ASSERT_FALSE(problems.empty()) << part;
  EXPECT_EQ(refusal_of(path), problems[0]);
  EXPECT_NE(problems[0].find(part), std::string::npos) << problems[0];
}

TEST(InspectAndLoad, AgreeOnGgufFiles) {
  struct Case {
    std::function<void(GgufBuilder&)> change;
    const char* part;
  };
  const auto text = [](const char* key, const char* value) {
    return [=](GgufBuilder& b) { b.replace(key, GgufValueType::kString, raw_string(value)); };
  };
  const Case cases[] = {
      {text("general.architecture", "rwkv"), "general.architecture: \"rwkv\" is not supported"},
      {text("tokenizer.ggml.pre", "unheard-of"), "unheard-of"},
      {text("tokenizer.ggml.model", "plamo2"), "plamo2"},
      {text("tokenizer.chat_template", "{% for %}"), "chat template, line 1: "},
      {text("tokenizer.chat_template", "{% include 'x' %}"), "chat template, line 1: "},
      {[](GgufBuilder& b) { b.add_text("llama.rope.scaling.type", "spiral"); },
       "llama.rope.scaling.type: \"spiral\" is not supported"},
      {[](GgufBuilder& b) { b.add_u32("llama.expert_count", 8); }, "llama.expert_used_count: "},
      {[](GgufBuilder& b) {
         b.tensors.erase(b.tensors.begin() + 2);
         b.add_tensor("blk.0.attn_q.weight", {32, 32}, 28);
       },
       "tensor blk.0.attn_q.weight: type F64 is not supported yet"},
      {[](GgufBuilder& b) { b.tensor("output_norm.weight").name = "other.weight"; },
       "tensor output_norm.weight: missing"},
      {[](GgufBuilder& b) { b.add_tensor("blk.0.attn_q.bias2", {32}, 0); },
       "architecture llama does not use it here"},
  };
  for (const Case& broken : cases) {
    GgufBuilder builder = tiny_llama();
    broken.change(builder);
    const std::string path = write("broken.gguf", builder.build());
    expect_agreement(path, broken.part);
    EXPECT_EQ(refusal_of(path).rfind(path + ": ", 0), 0u) << refusal_of(path);
  }
  const std::string whole = write("whole.gguf", tiny_llama().build());
  EXPECT_TRUE(problems_of(whole).empty());
  EXPECT_EQ(refusal_of(whole), "");
}

TEST(InspectAndLoad, AllProblemsAreListed) {
  GgufBuilder builder = tiny_llama();
  builder.replace("tokenizer.ggml.pre", GgufValueType::kString, raw_string("unheard-of"));
  builder.replace("tokenizer.chat_template", GgufValueType::kString, raw_string("{% for %}"));
  builder.tensor("output_norm.weight").name = "other.weight";
  EXPECT_EQ(problems_of(write("worse.gguf", builder.build())).size(), 4u);
}

TEST(InspectAndLoad, AgreeOnFolders) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "inspect-folder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write_file = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
  };
  const auto write_config = [&](const std::string& more) {
    write_file("config.json",
               R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8,
                "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                "vocab_size": 4, "tie_word_embeddings": true)" +
                   more + "}");
  };
  const std::string path = folder.string();
  write_file("config.json", R"({"architectures": ["RwkvForCausalLM"]})");
  expect_agreement(path, "architectures: ");
  write_config(R"(, "rope_scaling": {"rope_type": "spiral", "factor": 2})");
  expect_agreement(path, "\"spiral\" is not supported");
  write_config(R"(, "quantization_config": {"quant_method": "hqq"})");
  expect_agreement(path, "quantization_config: ");
  write_config("");
  expect_agreement(path, ": there is no model.safetensors");
  write_file("model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  expect_agreement(path, "is a Git LFS pointer");
  SafetensorsBuilder builder;
  builder.add("model.embed_tokens.weight", "F8_E4M3", {4, 8}, std::string(32, 'x'));
  write_file("model.safetensors", builder.build());
  expect_agreement(path, ": tensor model.embed_tokens.weight: type F8_E4M3 is not supported yet");
  EXPECT_EQ(problems_of(path)[1], path + ": tensor model.norm.weight: missing");
  write_file("tokenizer.json", R"({"version": "1.0", "model": {"type": "WordLevel"}})");
  EXPECT_NE(problems_of(path).back().find("WordLevel"), std::string::npos);
  std::filesystem::remove(folder / "tokenizer.json");
  write_file("vocab.json", "{}");
  EXPECT_NE(problems_of(path).back().find("there is no tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace headrace::inspect_test
