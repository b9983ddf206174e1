#include "stack/model_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "weights/gguf_fixture.h"
#include "weights/safetensors.h"
#include "weights/safetensors_writer.h"

namespace headrace::model_files_test {
namespace {

class ModelFilesTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = testing::TempDir() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // What a load refuses tiny_llama() with after one change, without its path.
  std::string error_of(const std::function<void(GgufBuilder&)>& change) {
    GgufBuilder builder = tiny_llama();
    change(builder);
    const std::string path = write("changed.gguf", builder.build());
    const auto source = open_model_source(path);
    if (!source.ok()) return source.status().message();
    Problems problems = read_weights(**source).problems;
    for (Status& problem : read_text(**source).problems) problems.push_back(std::move(problem));
    const Status status = refusal(problems);
    EXPECT_EQ(status.message().rfind(path + ": ", 0), 0u) << status.message();
    return status.ok() ? "" : status.message().substr(path.size() + 2);
  }
};

TEST_F(ModelFilesTest, OpensAGgufFile) {
  const std::string path = write("tiny.gguf", tiny_llama().build());
  EXPECT_EQ(model_name(path), "tiny");
  const auto source = open_model_source(path);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const ModelWeights weights = read_weights(**source);
  ASSERT_TRUE(refusal(weights.problems).ok()) << refusal(weights.problems).message();
  EXPECT_EQ(weights.config.layers, 1);
  EXPECT_EQ(weights.parameter_count, 264 * 32 + 32 * 32 * 2 + 16 * 32 * 2 + 3 * 64 * 32 + 3 * 32);
  EXPECT_EQ(weights.weight_types, "Q4_1 + Q8_0 + Q4_0 + F16 + BF16");
  EXPECT_TRUE(weights.weights->get("blk.0.attn_q.weight").ok());
  const ModelText text = read_text(**source);
  ASSERT_TRUE(refusal(text.problems).ok()) << refusal(text.problems).message();
  ASSERT_TRUE(text.vocab.has_value());
  EXPECT_EQ(text.vocab->pre, "smollm");
  EXPECT_EQ(text.vocab->tokens.size(), 264u);
  EXPECT_EQ(text.vocab->tokens[1], "<|im_start|>");
  EXPECT_EQ(text.vocab->kind(3), TokenKind::kUserDefined);
  EXPECT_EQ(text.vocab->merges.size(), 4u);
  EXPECT_EQ(text.vocab->end_ids, (std::vector<TokenId>{0, 2}));
  EXPECT_FALSE(text.vocab->add_bos);
  EXPECT_NE(text.tokenizer, nullptr);
  EXPECT_TRUE(text.chat_template.has_value());
}

TEST(ModelName, IsTheFilesOrTheFoldersName) {
  EXPECT_EQ(model_name("/a/b.Q4_1.gguf"), "b.Q4_1");
  EXPECT_EQ(model_name("/a/b-00002-of-00003.gguf"), "b");
  EXPECT_EQ(model_name("/a/b-0002-of-00003.gguf"), "b-0002-of-00003");
  for (const char* path :
       {"/a/b", "/a/b/", "/a/b/.", "/a/c/../b", "/a/b/config.json", "/a/b/model.safetensors"}) {
    EXPECT_EQ(model_name(path), "b") << path;
  }
  EXPECT_EQ(model_name("."), std::filesystem::current_path().filename().string());
}

TEST_F(ModelFilesTest, AFolderWithoutAConfiguration) {
  const std::filesystem::path folder = testing::TempDir() + "/no-config";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(open_model_source(folder.string()).status().message(),
            folder.string() + ": there is no config.json in this folder");
  std::ofstream(folder / "m.gguf") << "x";
  EXPECT_EQ(open_model_source(folder.string()).status().message(),
            folder.string() + ": there is no config.json in this folder (name m.gguf itself)");
  std::filesystem::remove_all(folder);
}

TEST_F(ModelFilesTest, WhatIsOnItsWayIsNoModel) {
  for (const auto& [name, made_by] :
       {std::pair("m.gguf.partial", "headrace quantize"), std::pair("m.gguf.part", "headrace pull"),
        std::pair("m.gguf.incomplete", "headrace pull")}) {
    const std::filesystem::path path = testing::TempDir() + "/" + name;
    std::ofstream(path) << "GGUF";
    const std::string message = open_model_source(path.string()).status().message();
    EXPECT_TRUE(message.starts_with(path.string() + ": is an unfinished ")) << message;
    EXPECT_NE(message.find(made_by), message.npos) << message;
    std::filesystem::remove(path);
  }
}

TEST_F(ModelFilesTest, MakesDummyWeightsFromAConfiguration) {
  const std::filesystem::path folder = testing::TempDir() + "/dummy-model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 96, "tie_word_embeddings": false})";
  for (const auto& path : {folder, folder / "config.json"}) {
    EXPECT_EQ(model_name(path.string()), "dummy-model");
    const auto source = open_model_source(path.string());
    ASSERT_TRUE(source.ok()) << source.status().message();
    const ModelWeights weights =
        read_weights(**source, {.format = LoadFormat::kDummy, .dtype = DType::kQ8_0});
    ASSERT_TRUE(refusal(weights.problems).ok()) << refusal(weights.problems).message();
    EXPECT_EQ(weights.weight_types, "Q8_0");
    auto output = weights.weights->get("output.weight", Shape{96, 64});
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(output->dtype, DType::kQ8_0);
    EXPECT_EQ(weights.weights->get("blk.1.attn_norm.weight")->dtype, DType::kF32);
    EXPECT_FALSE(read_text(**source).vocab.has_value());
    EXPECT_EQ(refusal(read_weights(**source).problems).message(),
              folder.string() +
                  ": there is no model.safetensors and no "
                  "model.safetensors.index.json");
    EXPECT_EQ(check_load_format(**source, LoadFormat::kGguf).field(), "load_format");
    EXPECT_EQ(value_named(kLoadFormats, "pt"), std::nullopt);
    EXPECT_TRUE(check_load_format(**source, LoadFormat::kHuggingFace).ok());
  }
}

TEST_F(ModelFilesTest, DummySharpnessIsOfQueriesAndKeysAlone) {
  const std::filesystem::path folder = testing::TempDir() + "/sharp-model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96})";
  const auto source = open_model_source(folder.string());
  ASSERT_TRUE(source.ok()) << source.status().message();
  const auto first_of = [&](const char* name, float sharpness) {
    const ModelWeights weights = read_weights(
        **source,
        {.format = LoadFormat::kDummy, .dtype = DType::kF32, .dummy_sharpness = sharpness});
    return *f32_row(*weights.weights->get(name), 0);
  };
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_q_norm.weight",
                           "blk.0.attn_k_norm.weight"}) {
    EXPECT_EQ(first_of(name, 2.0f), 2.0f * first_of(name, 1.0f)) << name;
  }
  for (const char* name :
       {"blk.0.attn_v.weight", "blk.0.attn_norm.weight", "blk.0.ffn_up.weight"}) {
    EXPECT_EQ(first_of(name, 2.0f), first_of(name, 1.0f)) << name;
  }
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
              b.add_tensor("blk.0.attn_q.scale", {32}, 0);
            }).rfind("tensor blk.0.attn_q.scale: architecture llama does not use it", 0),
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

// A copy of a tiny model, with an output matrix beside the embedding and tokens behind its rows.
class ChangedFolder : public testing::Test {
 protected:
  ChangedFolder() {
    std::filesystem::create_directories(folder_);
    std::filesystem::copy("tests/data/models/llama/config.json", folder_ / "config.json",
                          std::filesystem::copy_options::overwrite_existing);
  }
  ~ChangedFolder() override { std::filesystem::remove_all(folder_); }

  // The embedding's rows come again as the output matrix, but for one number in each, if so.
  void write_tied(bool differs) {
    const auto original =
        SafetensorsFile::open("tests/data/models/llama/model.safetensors").value();
    std::vector<SafetensorsEntry> entries;
    const SafetensorsTensor* embedding = nullptr;
    for (const SafetensorsTensor& tensor : original->plan().tensors) {
      if (tensor.name == "lm_head.weight") continue;
      if (tensor.name == "model.embed_tokens.weight") embedding = &tensor;
      entries.push_back({std::string(tensor.name), *tensor.type->dtype, tensor.shape});
    }
    ASSERT_NE(embedding, nullptr);
    entries.push_back({"lm_head.weight", *embedding->type->dtype, embedding->shape});
    const auto writer =
        SafetensorsWriter::create((folder_ / "model.safetensors").string(), entries).value();
    for (size_t i = 0; i + 1 < entries.size(); ++i) {
      std::ranges::copy(original->find(entries[i].name)->bytes, writer->data(i).begin());
    }
    const auto head = writer->data(entries.size() - 1);
    std::ranges::copy(embedding->bytes, head.begin());
    const size_t row = head.size() / static_cast<size_t>(embedding->shape[0]);
    for (size_t at = 0; differs && at < head.size(); at += row) head[at] ^= std::byte{1};
    set("tie_word_embeddings", true);
  }
  void set(const std::string& key, Json value) {
    std::ifstream file(folder_ / "config.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    Json config = parse_json(text).value();
    config.set(key, std::move(value));
    std::ofstream(folder_ / "config.json") << write_json(config);
  }

  const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "changed_llama";
};

TEST_F(ChangedFolder, AnOutputMatrixThatDiffersFromTheEmbeddingIsRead) {
  for (const bool differs : {false, true}) {
    write_tied(differs);
    const auto source = open_model_source(folder_.string()).value();
    const ModelWeights weights = read_weights(*source);
    ASSERT_TRUE(refusal(weights.problems).ok()) << refusal(weights.problems).message();
    EXPECT_EQ(weights.config.tied_embeddings, !differs);
    EXPECT_EQ(weights.weights->info("output.weight").has_value(), differs);
  }
}

// What tells these weights from others is in the files and not in their times.
TEST_F(ChangedFolder, WeightsAreToldApartByTheirContent) {
  const auto content = [&](bool differs) {
    write_tied(differs);
    return read_weights(*open_model_source(folder_.string()).value()).content;
  };
  const uint64_t one = content(false), other = content(true);
  EXPECT_NE(one, 0u);
  EXPECT_NE(one, other);
  EXPECT_EQ(content(false), one);
}

TEST_F(ModelFilesTest, TokensBehindTheRowsOfTheEmbeddingAreLeftOut) {
  GgufBuilder builder = tiny_llama();
  const auto source = open_model_source(write("tiny.gguf", builder.build())).value();
  const ModelWeights weights = read_weights(*source);
  ModelText text = read_text(*source);
  Vocab& vocab = *text.vocab;
  const size_t rows = vocab.tokens.size();
  vocab.tokens.insert(vocab.tokens.end(), {"<image>", "<pad>"});
  vocab.kinds.insert(vocab.kinds.end(), 2, TokenKind::kControl);
  vocab.pad = static_cast<TokenId>(rows + 1);
  vocab.end_ids.push_back(vocab.pad);
  EXPECT_TRUE(make_agree(*source, weights, text).empty());
  EXPECT_EQ(vocab.tokens.size(), rows);
  EXPECT_EQ(vocab.kinds.size(), rows);
  EXPECT_EQ(vocab.pad, -1);
  EXPECT_TRUE(std::ranges::none_of(vocab.end_ids,
                                   [&](TokenId id) { return id >= static_cast<TokenId>(rows); }));
  EXPECT_EQ(text.tokenizer->vocab_size(), static_cast<int32_t>(rows));
  // A word of the model's own is another matter.
  vocab.tokens.push_back("word");
  vocab.kinds.push_back(TokenKind::kNormal);
  EXPECT_NE(refusal(make_agree(*source, weights, text)).message().find("265 tokens"),
            std::string::npos);
}

// A folder of another class and other names, with a map, is the model that it is like.
TEST_F(ModelFilesTest, AMapSaysWhatAnUnknownClassIs) {
  namespace fs = std::filesystem;
  const fs::path llama = "tests/data/models/llama", folder = fs::path(testing::TempDir()) / "acme";
  fs::create_directories(folder);
  const auto original = SafetensorsFile::open((llama / "model.safetensors").string()).value();
  const auto renamed = [](std::string name) {
    constexpr std::string_view kFrom = "model.layers.", kTo = "h.";
    if (name.starts_with(kFrom)) name.replace(0, kFrom.size(), kTo);
    return name;
  };
  std::vector<SafetensorsEntry> entries;
  for (const SafetensorsTensor& tensor : original->plan().tensors) {
    entries.push_back({renamed(std::string(tensor.name)), *tensor.type->dtype, tensor.shape});
  }
  const auto writer =
      SafetensorsWriter::create((folder / "model.safetensors").string(), entries).value();
  for (size_t i = 0; i < entries.size(); ++i) {
    std::ranges::copy(original->plan().tensors[i].bytes, writer->data(i).begin());
  }
  std::ifstream config(llama / "config.json");
  std::string text{std::istreambuf_iterator<char>(config), {}};
  for (const auto& [from, to] : {std::pair<std::string, std::string>("LlamaForCausalLM", "Acme"),
                                 {"hidden_size", "width"}}) {
    text.replace(text.find(from), from.size(), to);
  }
  std::ofstream(folder / "config.json") << text;
  std::string tensors;
  for (const char* part :
       {"input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    tensors += fmt::format(R"({}"model.layers.{{}}.{}.weight": "h.{{}}.{}.weight")",
                           tensors.empty() ? "" : ", ", part, part);
  }
  const std::string map =
      write("acme.json", fmt::format(R"({{"class": "Acme", "like": "LlamaForCausalLM",
        "config": {{"hidden_size": "width"}}, "tensors": {{{}}}}})",
                                     tensors));
  const auto unknown = open_model_source(folder.string()).value();
  EXPECT_NE(refusal(read_weights(*unknown).problems).message().find("\"Acme\" is not supported"),
            std::string::npos);
  const auto source = open_model_source(folder.string(), map);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const ModelWeights own = read_weights(**source);
  ASSERT_TRUE(refusal(own.problems).ok()) << refusal(own.problems).message();
  const auto known = open_model_source(llama.string()).value();
  const ModelWeights of_llama = read_weights(*known);
  EXPECT_EQ(own.parameter_count, of_llama.parameter_count);
  for (const std::string_view name : of_llama.weights->names()) {
    const ConstTensorView a = own.weights->get(name).value();
    const ConstTensorView b = of_llama.weights->get(name).value();
    ASSERT_EQ(a.shape, b.shape) << name;
    const auto size = static_cast<size_t>(*tensor_bytes(a.dtype, a.shape));
    EXPECT_EQ(std::memcmp(a.data, b.data, size), 0) << name;
  }
  const std::string gguf = write("tiny.gguf", tiny_llama().build());
  EXPECT_EQ(
      open_model_source(gguf, map).status().message(),
      "--architecture-map: " + gguf + " is no Hugging Face folder, of whose classes maps are");
}

// Files of Gemma have keys and values of layers that attend what others keep, which nothing reads;
// of other layers nothing is left out.
TEST_F(ModelFilesTest, KeysOfLayersThatShareOthersAreLeftOut) {
  namespace fs = std::filesystem;
  const fs::path gemma = "tests/data/models/gemma3n",
                 folder = fs::path(testing::TempDir()) / "keys";
  fs::create_directories(folder);
  fs::copy_file(gemma / "config.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
  const auto original = SafetensorsFile::open((gemma / "model.safetensors").string()).value();
  const auto problem_with = [&](const std::string& more) {
    std::vector<SafetensorsEntry> entries;
    for (const SafetensorsTensor& tensor : original->plan().tensors) {
      entries.push_back({std::string(tensor.name), *tensor.type->dtype, tensor.shape});
    }
    entries.push_back({more, DType::kF32, Shape{2, 2}});
    const auto writer =
        SafetensorsWriter::create((folder / "model.safetensors").string(), entries).value();
    for (size_t i = 0; i + 1 < entries.size(); ++i) {
      std::ranges::copy(original->plan().tensors[i].bytes, writer->data(i).begin());
    }
    const auto source = open_model_source(folder.string()).value();
    return std::string(refusal(read_weights(*source).problems).message());
  };
  EXPECT_EQ(problem_with("model.layers.4.self_attn.k_proj.weight"), "");
  EXPECT_EQ(problem_with("model.layers.3.self_attn.v_proj.weight"), "");
  EXPECT_NE(problem_with("model.layers.2.layer_scalar").find("model.layers.2.layer_scalar"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::model_files_test
