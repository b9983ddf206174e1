#include "apps/inspect.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "weights/gguf_builder.h"

namespace headrace {
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
  builder.replace("general.architecture", GgufValueType::kString, raw_string("mamba"));
  const std::string path = write("mamba.gguf", builder.build());
  const auto json = inspect_model(path, {.json = true});
  ASSERT_TRUE(json.ok()) << json.status().message();
  const auto report = parse_json(*json);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->find("supported")->as_bool());
  const Json::Array& problems = report->find("problems")->as_array();
  ASSERT_EQ(problems.size(), 1u) << *json;
  EXPECT_EQ(problems[0].as_string().rfind(
                path + ": general.architecture: \"mamba\" is not supported (known: ", 0),
            0u)
      << problems[0].as_string();
}

}  // namespace
}  // namespace headrace
