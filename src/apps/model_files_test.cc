#include "apps/model_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "apps/gguf_vocab.h"
#include "apps/inspect.h"
#include "base/json.h"
#include "weights/gguf_builder.h"

namespace headrace {
namespace {

class ModelFilesTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = testing::TempDir() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // The message of opening tiny_llama() with one thing changed, without its path.
  std::string error_of(const std::function<void(GgufBuilder&)>& change) {
    GgufBuilder builder = tiny_llama();
    change(builder);
    const std::string path = write("changed.gguf", builder.build());
    const Status status = open_model(path).status();
    EXPECT_EQ(status.message().rfind(path + ": ", 0), 0u) << status.message();
    return status.ok() ? "" : status.message().substr(path.size() + 2);
  }
};

TEST_F(ModelFilesTest, OpensAGgufFile) {
  auto files = open_model(write("tiny.gguf", tiny_llama().build()));
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->name, "tiny");
  EXPECT_EQ(files->config.layers, 1);
  EXPECT_EQ(files->parameter_count, 264 * 32 + 32 * 32 * 2 + 16 * 32 * 2 + 3 * 64 * 32 + 3 * 32);
  EXPECT_EQ(files->weight_types, "Q4_1 + Q8_0 + Q4_0 + F16 + BF16");
  ASSERT_TRUE(files->vocab.has_value());
  EXPECT_EQ(files->vocab->pre, "smollm");
  EXPECT_EQ(files->vocab->tokens.size(), 264u);
  EXPECT_EQ(files->vocab->tokens[1], "<|im_start|>");
  EXPECT_EQ(files->vocab->kind(3), TokenKind::kUserDefined);
  EXPECT_EQ(files->vocab->merges.size(), 4u);
  EXPECT_EQ(files->vocab->end_ids, (std::vector<TokenId>{0, 2}));
  EXPECT_FALSE(files->vocab->add_bos);
  EXPECT_FALSE(files->chat_template.empty());
  EXPECT_TRUE(files->weights->get("blk.0.attn_q.weight").ok());
}

TEST_F(ModelFilesTest, MakesDummyWeightsFromAConfiguration) {
  const std::filesystem::path folder = testing::TempDir() + "/dummy-model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 96, "tie_word_embeddings": false})";
  for (const auto& path : {folder, folder / "config.json"}) {
    auto files = open_model(path.string(), {.load_format = "dummy", .dummy_dtype = DType::kQ8_0});
    ASSERT_TRUE(files.ok()) << files.status().message();
    EXPECT_EQ(files->name, "dummy-model");
    EXPECT_FALSE(files->vocab.has_value());
    EXPECT_EQ(files->weight_types, "Q8_0");
    auto output = files->weights->get("output.weight", Shape{96, 64});
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(output->dtype, DType::kQ8_0);
    EXPECT_EQ(files->weights->get("blk.1.attn_norm.weight")->dtype, DType::kF32);
  }
  EXPECT_EQ(open_model(folder.string()).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(open_model("x.gguf", {.load_format = "pt"}).status().field(), "load_format");
}

TEST_F(ModelFilesTest, TensorsMustBeThoseOfTheArchitecture) {
  EXPECT_EQ(error_of([](GgufBuilder& b) {
              b.tensor("blk.0.ffn_up.weight").name = "blk.0.ffn_uq.weight";
            }),
            "tensor blk.0.ffn_up.weight: missing");
  EXPECT_EQ(error_of([](GgufBuilder& b) {
              b.tensor("blk.0.attn_k.weight").ne = {16, 32};
            }),
            "tensor blk.0.attn_k.weight: shape [32, 16], the model's sizes ask for [16, 32]");
  EXPECT_EQ(error_of([](GgufBuilder& b) {
              b.add_tensor("blk.0.attn_q.bias", {32}, 0);
            }).rfind("tensor blk.0.attn_q.bias: architecture llama does not use it", 0),
            0u);
  EXPECT_EQ(error_of([](GgufBuilder& b) {
              b.replace("llama.block_count", GgufValueType::kUint32, raw(2u));
            }),
            "tensor blk.1.attn_norm.weight: missing");
}

TEST_F(ModelFilesTest, VocabulariesThatContradictThemselves) {
  const std::string kinds = "tokenizer.ggml.token_type", tokens = "tokenizer.ggml.tokens";
  EXPECT_EQ(error_of([&](GgufBuilder& b) {
              b.remove(kinds).add_ints(kinds, {1, 2});
            }),
            kinds + ": 2 entries for 264 tokens");
  for (const int32_t kind : {-1, 0, 7}) {
    EXPECT_EQ(error_of([&](GgufBuilder& b) {
                b.remove(kinds).add_ints(kinds, std::vector<int32_t>(264, kind));
              }),
              kinds + ": entry 0 is no token type (1 to 6)");
  }
  EXPECT_EQ(error_of([&](GgufBuilder& b) { b.remove(tokens); }), tokens + ": missing");
  EXPECT_EQ(error_of([&](GgufBuilder& b) { b.remove(tokens).add_ints(tokens, {1}); }),
            tokens + ": is an array of int32, expected strings");
  EXPECT_EQ(error_of([&](GgufBuilder& b) {
              b.replace("tokenizer.ggml.bos_token_id", GgufValueType::kInt32, raw(-2));
            }),
            "tokenizer.ggml.bos_token_id: -2 is no id of a vocabulary of 264 tokens");
  EXPECT_EQ(error_of([&](GgufBuilder& b) {
              b.replace("tokenizer.ggml.model", GgufValueType::kBool, raw<uint8_t>(1));
            }),
            "tokenizer.ggml.model: is bool, expected a string");
}

TEST_F(ModelFilesTest, InspectShowsWhatRunsAndWhatDoesNot) {
  const std::string path = write("tiny.gguf", tiny_llama().build());
  auto text = inspect_file(path, {.tensors = true});
  ASSERT_TRUE(text.ok()) << text.status().message();
  for (const char* part :
       {"architecture   llama", "context        128 tokens", "runs here      yes",
        "blk.0.ffn_down.weight", "264 tokens, 4 merges", "64 bytes a token"}) {
    EXPECT_NE(text->find(part), std::string::npos) << part << "\n" << *text;
  }
  GgufBuilder builder = tiny_llama();
  builder.replace("general.architecture", GgufValueType::kString, raw_string("mamba"));
  builder.add_tensor("x.weight", {256, 2}, 14);
  auto json = inspect_file(write("mamba.gguf", builder.build()), {.json = true});
  ASSERT_TRUE(json.ok()) << json.status().message();
  const auto report = parse_json(*json);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->find("supported")->as_bool());
  const Json::Array& problems = report->find("problems")->as_array();
  ASSERT_EQ(problems.size(), 2u) << *json;
  EXPECT_EQ(problems[0].as_string(), "type Q6_K is not supported yet (1 tensors)");
  EXPECT_EQ(problems[1].as_string(),
            "general.architecture: \"mamba\" is not supported (known: llama)");
  EXPECT_FALSE(inspect_file("/nowhere.gguf").ok());
}

}  // namespace
}  // namespace headrace
