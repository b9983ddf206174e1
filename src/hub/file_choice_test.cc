#include "hub/file_choice.h"

#include <gtest/gtest.h>

namespace headrace::file_choice_test {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

HubModel repository(const std::vector<std::pair<std::string, int64_t>>& files) {
  HubModel model;
  for (const auto& [path, size] : files) {
    HubFile file;
    file.path = path;
    file.size = size;
    model.files.push_back(file);
  }
  return model;
}

std::string chosen(const HubModel& model, const std::string& quant = "",
                   int64_t memory = 100 * kGigabyte) {
  const auto files = choose_files(model, "maker/model", quant, memory);
  if (!files.ok()) return files.status().message();
  std::string names;
  for (const HubFile& file : *files) names += (names.empty() ? "" : " ") + file.path;
  return names;
}

TEST(FileChoice, OneQuantByItsName) {
  const HubModel model = repository({{"README.md", 1},
                                     {"mmproj-model.gguf", kGigabyte},
                                     {"model-Q4_0_4_4.gguf", 4 * kGigabyte},
                                     {"model-Q4_0.gguf", 4 * kGigabyte},
                                     {"model.q8_0.gguf", 8 * kGigabyte},
                                     {"big/model-F16-00001-of-00002.gguf", 8 * kGigabyte},
                                     {"big/model-F16-00002-of-00002.gguf", 8 * kGigabyte}});
  EXPECT_EQ(chosen(model, "Q4_0"), "model-Q4_0.gguf");
  EXPECT_EQ(chosen(model, "Q8_0"), "model.q8_0.gguf");
  EXPECT_EQ(chosen(model, "f16"),
            "big/model-F16-00001-of-00002.gguf big/model-F16-00002-of-00002.gguf");
  EXPECT_NE(chosen(model, "Q2_K").find("no Q2_K in it; there is: big/model-F16 (16.0 GB)"),
            std::string::npos);
}

TEST(FileChoice, WithoutAQuantWhatFitsInMemory) {
  const HubModel model = repository({{"model-Q2_K.gguf", 3 * kGigabyte},
                                     {"model-Q3_K_M.gguf", 4 * kGigabyte},
                                     {"model-Q4_K_M.gguf", 5 * kGigabyte},
                                     {"model-Q8_0.gguf", 8 * kGigabyte}});
  EXPECT_EQ(chosen(model), "model-Q4_K_M.gguf");
  EXPECT_EQ(chosen(model, "", 6 * kGigabyte), "model-Q3_K_M.gguf");
  EXPECT_EQ(chosen(model, "", 4 * kGigabyte), "model-Q2_K.gguf");
  EXPECT_NE(chosen(model, "", kGigabyte).find("no file of it fits in 1.0 GB"), std::string::npos);
  EXPECT_EQ(chosen(repository({{"odd.gguf", kGigabyte}})), "odd.gguf");
}

TEST(FileChoice, SafetensorsWithWhatBelongsToThem) {
  HubModel model = repository({{".gitattributes", 1},
                               {"1_Pooling/config.json", 1},
                               {"config.json", 1},
                               {"consolidated.safetensors", 9},
                               {"merges.txt", 1},
                               {"model.safetensors", 9},
                               {"onnx/model.onnx", 9},
                               {"onnx/config.json", 1},
                               {"original/weights.safetensors", 9},
                               {"pytorch_model.bin", 9},
                               {"tokenizer.json", 1},
                               {"tokenizer.model", 1}});
  EXPECT_EQ(chosen(model),
            "1_Pooling/config.json config.json merges.txt model.safetensors tokenizer.json "
            "tokenizer.model");
  EXPECT_NE(chosen(repository({{"pytorch_model.bin", 9}})).find("neither safetensors"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::file_choice_test
