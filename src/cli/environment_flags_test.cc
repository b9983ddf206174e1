#include "cli/environment_flags.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/engine_flags.h"
#include "cli/foreign_flags.h"
#include "cli/model_flags.h"
#include "cli/pooling_flags.h"

namespace headrace::environment_flags_test {
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

// As a server has them: what vectors are made with, and what other engines have.
class SwitchesTest : public EnvironmentFlagsTest {
 protected:
  Result<PoolingOptions> pooling(std::vector<std::string> arguments) {
    CLI::App app{"", "test"};
    ModelFlags flags;
    add_pooling_flags(app, flags.stack.pooling);
    add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
    add_engine_flags(app, flags);
    arguments.emplace_back("x.gguf");
    const EnvironmentFlags environment = flags_of_environment(app, arguments);
    HR_RETURN_IF_ERROR(parse_arguments(app, with_environment(environment, arguments)).status());
    return flags.stack.pooling;
  }
};

TEST_F(SwitchesTest, WhatIsOffAsksForNothing) {
  for (const char* off : {"0", "false", "off", "no", "disabled", ""}) {
    for (const char* name : {"LLAMA_ARG_EMBEDDINGS", "HEADRACE_EMBEDDING", "LLAMA_ARG_RERANKING",
                             "HEADRACE_ENABLE_LORA", "HEADRACE_HELP"}) {
      set(name, off);
    }
    const auto options = pooling({});
    ASSERT_TRUE(options.ok()) << off << ": " << options.status().message();
    EXPECT_EQ(options->runner, RunnerChoice::kAuto) << off;
  }
  const auto options = pooling({"--is-embedding=false", "--rerank=0", "--enable-lora=off"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->runner, RunnerChoice::kAuto);
}

TEST_F(SwitchesTest, WhatIsOnAsks) {
  set("LLAMA_ARG_EMBEDDINGS", "1");
  EXPECT_EQ(pooling({})->convert, ConvertChoice::kEmbed);
  EXPECT_EQ(pooling({"--embeddings=false"})->runner, RunnerChoice::kAuto);  // goes first
  EXPECT_EQ(pooling({"--embeddings=false", "--reranking"})->convert, ConvertChoice::kClassify);
  set("HEADRACE_ENABLE_LORA", "1");
  EXPECT_NE(pooling({}).status().message().find("--enable-lora"), std::string_view::npos);
}

TEST_F(EnvironmentFlagsTest, NobodyAsksForHelpThere) {
  app_.set_help_flag("-h,--help", "This page");
  set("HEADRACE_HELP", "1");
  EXPECT_TRUE(flags_of_environment(app_, {"x.gguf"}).arguments.empty());
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

TEST_F(EnvironmentFlagsTest, WhatIsMisspeltIsTold) {
  set("HEADRACE_MAX_MODEL_LENGHT", "secret");
  set("HEADRACE_SERVICE_HOST", "10.0.0.1");  // Kubernetes'
  set("HEADRACE_PORT_8000_TCP", "tcp://10.0.0.1:8000");
  set("HEADRACE_CPU_ISA", "avx2");
  set("OLLAMA_HOST", "0.0.0.0");
  ASSERT_TRUE(parse({"x.gguf"}).ok());
  EXPECT_EQ(told_,
            "headrace: warning: HEADRACE_MAX_MODEL_LENGHT is not read: there is nothing like it "
            "here\n");
}

// They are of Ollama's server: another command has nothing to say of them.
TEST_F(EnvironmentFlagsTest, AServerTellsWhatItDoesForOllamasVariables) {
  int port = 0;
  app_.add_option("--port", port);
  set("OLLAMA_HOST", "0.0.0.0:11434");
  set("OLLAMA_KEEP_ALIVE", "5m");
  set("OLLAMA_MODELS", "/models");
  set("OLLAMA_DEBUG", "1");
  ASSERT_TRUE(parse({"x.gguf"}).ok());
  for (const char* told : {"OLLAMA_HOST is not read: --host", "OLLAMA_KEEP_ALIVE is not read: --",
                           "OLLAMA_MODELS is not read: --models-dir"}) {
    EXPECT_NE(told_.find(told), told_.npos) << told_;
  }
  EXPECT_EQ(told_.find("DEBUG"), told_.npos);
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
}  // namespace headrace::environment_flags_test
