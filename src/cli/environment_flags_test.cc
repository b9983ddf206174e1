#include "cli/environment_flags.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"

namespace headrace {
namespace {

// An app with the flags of a model, whose environment has these variables.
class EnvironmentFlagsTest : public testing::Test {
 protected:
  EnvironmentFlagsTest() {
    add_model_flags(app_, flags_, ModelArgument::kFlagOrPositional);
    add_engine_flags(app_, flags_);
    app_.add_option("--names", names_);
  }
  ~EnvironmentFlagsTest() override {
    for (const auto& [name, _] : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    set_[name] = value;
    setenv(name.c_str(), value.c_str(), 1);
  }
  // Parses; what it told on stderr stays in `told_`.
  Status parse(const std::vector<std::string>& arguments) {
    testing::internal::CaptureStderr();
    const EnvironmentFlags environment = flags_of_environment(app_, arguments);
    const Status status = parse_arguments(app_, with_environment(environment, arguments)).status();
    told_ = testing::internal::GetCapturedStderr();
    return status;
  }

  CLI::App app_{"", "test"};
  ModelFlags flags_;
  std::vector<std::string> names_;
  std::map<std::string, std::string> set_;
  std::string told_;
};

TEST_F(EnvironmentFlagsTest, VariablesAreFlags) {
  set("HEADRACE_MAX_MODEL_LEN", "4k");
  set("LLAMA_ARG_N_PARALLEL", "3");
  set("LLAMA_ARG_N_GPU_LAYERS", "99");  // accepted and told, as the flag is
  set("HEADRACE_SKIP_UNREAD_ROWS", "off");
  set("HEADRACE_NAMES", "a");  // takes several: not what stands behind it
  const Status status = parse({"x.gguf"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(flags_.stack.model, "x.gguf");
  EXPECT_EQ(flags_.stack.memory.max_model_len, 4000);
  EXPECT_EQ(flags_.stack.batch.max_num_seqs, 3);
  EXPECT_FALSE(flags_.stack.runner.keep_logit_rows);
  EXPECT_EQ(names_, std::vector<std::string>{"a"});
  EXPECT_NE(told_.find("--n-gpu-layers is ignored"), std::string::npos) << told_;
}

TEST_F(EnvironmentFlagsTest, TheCommandLineGoesFirst) {
  set("HEADRACE_MAX_MODEL_LEN", "4k");
  set("LLAMA_ARG_CTX_SIZE", "3k");
  const Status status = parse({"-c", "2048", "--", "x.gguf"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(flags_.stack.memory.max_model_len, 2048);
  EXPECT_EQ(flags_.stack.model, "x.gguf");
}

TEST_F(EnvironmentFlagsTest, WhatIsNoFlagIsLeftAlone) {
  set("HEADRACE_SIM_STEPS", "7");
  set("HEADRACE_MODEL", "other.gguf");
  set("LLAMA_ARG_FROBNICATE", "secret");
  const Status status = parse({"x.gguf"});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(flags_.stack.model, "x.gguf");
  EXPECT_NE(told_.find("LLAMA_ARG_FROBNICATE is not read"), std::string::npos) << told_;
  EXPECT_EQ(told_.find("secret"), std::string::npos);
}

TEST_F(EnvironmentFlagsTest, WrongValuesAreErrorsOfTheirFlags) {
  set("HEADRACE_MAX_MODEL_LEN", "many");
  EXPECT_NE(parse({"x.gguf"}).message().find("--max-model-len"), std::string_view::npos);
  set("HEADRACE_MAX_MODEL_LEN", "4k");
  set("LLAMA_ARG_SLOT_SAVE_PATH", "x");
  EXPECT_NE(parse({"x.gguf"}).message().find("--slot-save-path: is not supported"),
            std::string_view::npos);
}

}  // namespace
}  // namespace headrace
