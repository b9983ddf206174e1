#include "apps/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "apps/engine_flags.h"
#include "apps/model_flags.h"
#include "apps/sampling_flags.h"
#include "apps/subcommand.h"

namespace headrace {
namespace {

int64_t size_of(std::string_view text) {
  const Result<int64_t> size = parse_size(text);
  return size.ok() ? *size : -1;
}

TEST(ParseSize, SmallLettersAreDecimalAndLargeOnesBinary) {
  EXPECT_EQ(size_of("0"), 0);
  EXPECT_EQ(size_of("512"), 512);
  EXPECT_EQ(size_of("1k"), 1000);
  EXPECT_EQ(size_of("1K"), 1024);
  EXPECT_EQ(size_of("25.6k"), 25600);
  EXPECT_EQ(size_of("2m"), 2'000'000);
  EXPECT_EQ(size_of("2M"), 2 << 20);
  EXPECT_EQ(size_of("3G"), int64_t{3} << 30);
  EXPECT_EQ(size_of("1t"), 1'000'000'000'000);
  EXPECT_EQ(size_of("9223372036854775807"), INT64_MAX);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "k", "-1", "1.5K", "1.k", ".5k", "1kk", "1 k", "0x10", "1e3",
                           "9.3.1k", "9223372036854775808", "9000000T", "+4"}) {
    EXPECT_EQ(size_of(text), -1) << text;
  }
}

TEST(ParseSizeList, TakesCommas) {
  EXPECT_EQ(*parse_size_list("1,2k,4"), (std::vector<int64_t>{1, 2000, 4}));
  EXPECT_FALSE(parse_size_list("1,,2").ok());
  EXPECT_FALSE(parse_size_list("1,").ok());
  EXPECT_FALSE(parse_size_list("").ok());
}

class ModelFlagsTest : public testing::Test {
 protected:
  ModelFlagsTest() {
    add_sampling_flags(app_, sampling_);
    add_model_flags(app_, flags_, ModelArgument::kFlagOrPositional);
    add_engine_flags(app_, flags_);
  }
  Status parse(std::vector<std::string> arguments) {
    return parse_arguments(app_, std::move(arguments)).status();
  }

  CLI::App app_{"", "test"};
  ModelFlags flags_;
  SamplingFlags sampling_;
};

TEST_F(ModelFlagsTest, DefaultsStay) {
  ASSERT_TRUE(parse({}).ok());
  const StackOptions defaults;
  EXPECT_EQ(flags_.stack.max_num_seqs, defaults.max_num_seqs);
  EXPECT_EQ(flags_.stack.dtype, "auto");
  EXPECT_TRUE(flags_.stack.chunked_prefill);
}

TEST_F(ModelFlagsTest, TheModelIsAFlagOrAnArgument) {
  ASSERT_TRUE(parse({"a.gguf", "--dtype", "float32"}).ok());
  EXPECT_EQ(flags_.stack.model, "a.gguf");
}

TEST_F(ModelFlagsTest, KebabAndSnakeAreOneFlag) {
  ASSERT_TRUE(parse({"--max_model_len=4K", "--max-num-seqs", "8", "--dtype", "float32"}).ok());
  EXPECT_EQ(flags_.stack.max_model_len, 4096);
  EXPECT_EQ(flags_.stack.max_num_seqs, 8);
}

TEST_F(ModelFlagsTest, UnderscoresInValuesStay) {
  ASSERT_TRUE(parse({"--model=my_model.gguf"}).ok());
  EXPECT_EQ(flags_.stack.model, "my_model.gguf");
}

TEST_F(ModelFlagsTest, SpellingsOfOtherServersAreKnown) {
  ASSERT_TRUE(parse({"-c", "2k", "-np", "3", "-ub", "256", "-t", "2", "-m", "b.gguf"}).ok());
  EXPECT_EQ(flags_.stack.max_model_len, 2000);
  EXPECT_EQ(flags_.stack.max_num_seqs, 3);
  EXPECT_EQ(flags_.stack.max_num_batched_tokens, 256);
  EXPECT_EQ(flags_.stack.threads, 2);
  EXPECT_EQ(flags_.stack.model, "b.gguf");
}

TEST_F(ModelFlagsTest, SglangSpellings) {
  ASSERT_TRUE(parse({"--model-path", "c.gguf", "--context-length", "512", "--chunked_prefill_size",
                     "64", "--max-running-requests", "5"})
                  .ok());
  EXPECT_EQ(flags_.stack.model, "c.gguf");
  EXPECT_EQ(flags_.stack.max_model_len, 512);
  EXPECT_EQ(flags_.stack.max_num_batched_tokens, 64);
  EXPECT_EQ(flags_.stack.max_num_seqs, 5);
}

TEST_F(ModelFlagsTest, TheContextMayBeLeftToTheModel) {
  flags_.stack.max_model_len = 7;
  ASSERT_TRUE(parse({"--max-model-len", "auto"}).ok());
  EXPECT_EQ(flags_.stack.max_model_len, 0);
  ASSERT_TRUE(parse({"--max-model-len=-1"}).ok());
  EXPECT_EQ(flags_.stack.max_model_len, 0);
}

TEST_F(ModelFlagsTest, TheLastValueWins) {
  ASSERT_TRUE(parse({"--max-num-seqs", "4", "--parallel", "9"}).ok());
  EXPECT_EQ(flags_.stack.max_num_seqs, 9);
}

TEST_F(ModelFlagsTest, NoTurnsAFlagOff) {
  ASSERT_TRUE(parse({"--no-enable-chunked-prefill"}).ok());
  EXPECT_FALSE(flags_.stack.chunked_prefill);
}

TEST_F(ModelFlagsTest, SamplingFlags) {
  ASSERT_TRUE(parse({"--temp", "0.5", "--top-k=40", "--top_p", "0.9", "--seed",
                     "18446744073709551615", "-n", "-1", "--stop", "a", "--stop", "b,c"})
                  .ok());
  const SamplingParams sampling = resolve_sampling(sampling_, {});
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_EQ(sampling.max_tokens, -1);
  EXPECT_EQ(sampling_.stops, (std::vector<std::string>{"a", "b,c"}));
}

TEST_F(ModelFlagsTest, TheCommandLineGoesBeforeTheModelBeforeTheCommand) {
  sampling_.sampling.min_p = 0.1f;
  ASSERT_TRUE(parse({"--temperature", "0", "-n", "100"}).ok());
  const SamplingParams sampling =
      resolve_sampling(sampling_, {.temperature = 0.7f, .top_k = 20, .max_new_tokens = 50});
  EXPECT_EQ(sampling.temperature, 0.0f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.max_tokens, 50);
}

TEST_F(ModelFlagsTest, HelpTellsWhatTurnsAFlagOff) {
  std::istringstream words(help_page(app_));
  std::string page;
  for (std::string word; words >> word;) page += word + " ";
  EXPECT_NE(page.find("(off: --enforce-eager, --no-cuda-graphs)"), page.npos) << page;
  EXPECT_NE(page.find("(also --async-scheduling)"), page.npos) << page;
}

TEST_F(ModelFlagsTest, WrongValuesNameTheFlag) {
  const auto message = [&](std::vector<std::string> arguments) {
    return parse(std::move(arguments)).message();
  };
  EXPECT_NE(message({"--max-num-seqs", "0"}).find("--max-num-seqs"), std::string::npos);
  EXPECT_NE(message({"--max-model-len", "1.5K"}).find("--max-model-len"), std::string::npos);
  EXPECT_NE(message({"--dtype", "int8"}).find("--dtype"), std::string::npos);
  EXPECT_NE(message({"--temperature", "warm"}).find("--temperature"), std::string::npos);
  EXPECT_NE(message({"--top-p", "1.5"}).find("--top-p"), std::string::npos);
  EXPECT_NE(message({"--top-p", "nan"}).find("--top-p"), std::string::npos);
  EXPECT_NE(message({"--no-such-flag"}).find("--no-such-flag"), std::string::npos);
  EXPECT_EQ(message({"--no-such-flag"}).find('\n'), std::string::npos);
}

TEST_F(ModelFlagsTest, UnknownFlagsAreNamedWithTheNearest) {
  const auto message = [](std::vector<std::string> arguments) {
    CLI::App app{"", "test"};
    ModelFlags flags;
    add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
    add_engine_flags(app, flags);
    return parse_arguments(app, std::move(arguments)).status().message();
  };
  EXPECT_TRUE(
      message({"x.gguf", "--max_model_length", "4"})
          .starts_with("there is no flag --max-model-length; did you mean --max-model-len?"))
      << message({"x.gguf", "--max_model_length", "4"});
  EXPECT_TRUE(
      message({"--treads=4"}).starts_with("there is no flag --treads; did you mean --thre"));
  EXPECT_TRUE(message({"--frobnicate", "7"}).starts_with("there is no flag --frobnicate (see"));
  EXPECT_TRUE(message({"x.gguf", "y.gguf"}).starts_with("'y.gguf' was not expected"));
}

TEST_F(ModelFlagsTest, FlagsWithoutMeaningHereAreAcceptedAndTold) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(
      parse({"--swap-space", "4", "--enable_reasoning", "-ngl", "99", "--trust-remote-code"}).ok());
  const std::string told = testing::internal::GetCapturedStderr();
  for (const char* name :
       {"--swap-space", "--enable-reasoning", "--gpu-layers", "--trust-remote-code"}) {
    EXPECT_NE(told.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 4);
}

TEST_F(ModelFlagsTest, TheOnlyValueThereIsIsTakenInSilence) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(
      parse({"-tp", "1", "--kv_cache_dtype", "auto", "-ctk", "f16", "--block-size=16"}).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const std::string message = parse({"--tensor-parallel-size", "2"}).message();
  EXPECT_TRUE(message.starts_with(
      "--tensor-parallel-size: 2 is not supported, only 1: a model runs whole on one device"))
      << message;
}

TEST_F(ModelFlagsTest, FlagsThatWouldChangeAnswersAreRefusedWithTheReason) {
  const std::string message = parse({"--tool-call-parser", "hermes"}).message();
  EXPECT_TRUE(message.starts_with("--tool-call-parser: is not supported: answers are given as"))
      << message;
  EXPECT_FALSE(parse({"--enable-lora"}).ok());
  EXPECT_FALSE(parse({"--ssl-key-file", "x"}).ok());
}

TEST_F(ModelFlagsTest, HelpHidesThem) {
  const std::string page = help_page(app_);
  EXPECT_EQ(page.find("--swap-space"), std::string::npos);
  EXPECT_NE(page.find("--max-model-len N"), std::string::npos);
  EXPECT_NE(page.find("auto|float32"), std::string::npos);
  EXPECT_NE(page.find("(also --ctx-size"), std::string::npos);
}

// Defining flags throws where two of them share a name.
TEST(Subcommands, EachHasFlagsAndAHelpPageOfSaneWidth) {
  for (const Subcommand& subcommand : subcommands()) {
    const std::unique_ptr<CLI::App> app = make_app(subcommand);
    const SubcommandRun run = subcommand.define(*app);
    EXPECT_TRUE(run);
    std::istringstream page(help_page(*app));
    for (std::string line; std::getline(page, line);) {
      EXPECT_LE(line.size(), 110u) << subcommand.name << ": " << line;
    }
    EXPECT_EQ(*parse_arguments(*app, {"--help"}), ParseOutcome::kHelp);
  }
  EXPECT_EQ(find_subcommand("no-such"), nullptr);
}

}  // namespace
}  // namespace headrace
