#include "cli/adapter_flags.h"

#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/model_flags.h"

namespace headrace::adapter_flags_test {
namespace {

Status parse(const std::vector<std::string>& arguments, ModelFlags& flags) {
  CLI::App app{"", "test"};
  add_adapter_flags(app, flags.stack.adapters);
  add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
  return parse_arguments(app, arguments).status();
}

TEST(AdapterFlags, AModuleIsANameAndAPath) {
  ModelFlags flags;
  const Status status =
      parse({"x.gguf", "--lora-modules", "sql=adapters/sql", R"({"name": "js", "path": "b=c"})",
             "--lora-modules", "d=e", "--max-lora-rank", "32", "--max-loras", "4"},
            flags);
  ASSERT_TRUE(status.ok()) << status.message();
  const AdapterOptions& options = flags.stack.adapters;
  ASSERT_EQ(options.at_start.size(), 3u);
  EXPECT_EQ(options.at_start[0].name, "sql");
  EXPECT_EQ(options.at_start[0].path, "adapters/sql");
  EXPECT_EQ(options.at_start[1].name, "js");
  EXPECT_EQ(options.at_start[1].path, "b=c");
  EXPECT_EQ(options.rank_max, 32);
  EXPECT_EQ(options.count_max, 4);
  EXPECT_EQ(flags.stack.model, "x.gguf");
  EXPECT_TRUE(options.wanted() && !options.enabled);
}

TEST(AdapterFlags, WhatIsNoModule) {
  for (const char* text :
       {"sql", "=x", "sql=", "{}", R"({"name": "a"})", R"({"name": 1, "path": "b"})",
        R"({"name": "a", "path": "b", "rank": 3})", "{"}) {
    EXPECT_FALSE(read_adapter_spec(text).ok()) << text;
    ModelFlags flags;
    EXPECT_NE(parse({"--lora-modules", text}, flags).message().find("--lora-modules"),
              std::string_view::npos)
        << text;
  }
}

TEST(AdapterFlags, OneOfAllRequests) {
  ModelFlags flags;
  ASSERT_TRUE(parse({"--lora-scaled", "a/b.gguf:0.5", "--lora-dtype", "float32"}, flags).ok());
  ASSERT_TRUE(flags.stack.adapters.of_all.has_value());
  EXPECT_EQ(flags.stack.adapters.of_all->name, "b.gguf");
  EXPECT_EQ(flags.stack.adapters.of_all->path, "a/b.gguf");
  EXPECT_EQ(flags.stack.adapters.of_all->scale, 0.5);
  EXPECT_EQ(flags.stack.adapters.dtype, DType::kF32);
  EXPECT_NE(parse({"--lora", "other"}, flags).message().find("one adapter at a time"),
            std::string_view::npos);
  ModelFlags nowhere;
  EXPECT_NE(parse({"--lora", ""}, nowhere).message().find("must name"), std::string_view::npos);
  for (const char* text : {"a", "a:", ":1", "a:x", "a:1x", "a:1e9"}) {
    ModelFlags wrong;
    EXPECT_FALSE(parse({"--lora-scaled", text}, wrong).ok()) << text;
  }
}

// run and chat, too: what an adapter's error names can be given.
TEST(AdapterFlags, OneAdapterMayHaveALargeRank) {
  ModelFlags flags;
  CLI::App app{"", "test"};
  add_adapter_flag(app, flags.stack.adapters);
  add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
  const Status status =
      parse_arguments(app, {"x.gguf", "--lora", "a", "--max-lora-rank", "256"}).status();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(flags.stack.adapters.rank_max, 256);
}

}  // namespace
}  // namespace headrace::adapter_flags_test
