#include "cli/command_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/pooling_flags.h"
#include "cli/sampling_flags.h"
#include "stack/kv_format_choice.h"

namespace headrace::command_line_test {
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
  EXPECT_EQ(flags_.stack.batch.max_num_seqs, defaults.batch.max_num_seqs);
  EXPECT_EQ(flags_.stack.load.dtype, std::nullopt);
  EXPECT_TRUE(flags_.stack.engine.scheduler.chunked_prefill);
}

TEST_F(ModelFlagsTest, ANameOfATableIsItsValueAndNoOtherIsTaken) {
  ASSERT_TRUE(parse({"--cpu-bind", "core", "--dtype", "half", "--kv-memory=virtual"}).ok());
  EXPECT_EQ(flags_.stack.device.cpu_bind, CpuBinding::kCore);
  EXPECT_EQ(flags_.stack.load.dtype, DType::kF16);
  EXPECT_EQ(flags_.stack.runner.kv_memory, KvMemoryKind::kVirtual);
  EXPECT_FALSE(parse({"--cpu-bind", "socket"}).ok());
}

TEST_F(ModelFlagsTest, TheModelIsAFlagOrAnArgument) {
  ASSERT_TRUE(parse({"a.gguf", "--dtype", "float32"}).ok());
  EXPECT_EQ(flags_.stack.model, "a.gguf");
}

TEST_F(ModelFlagsTest, KebabAndSnakeAreOneFlag) {
  ASSERT_TRUE(parse({"--max_model_len=4K", "--max-num-seqs", "8", "--dtype", "float32"}).ok());
  EXPECT_EQ(flags_.stack.memory.max_model_len, 4096);
  EXPECT_EQ(flags_.stack.batch.max_num_seqs, 8);
}

TEST_F(ModelFlagsTest, UnderscoresInValuesStay) {
  ASSERT_TRUE(parse({"--model=my_model.gguf"}).ok());
  EXPECT_EQ(flags_.stack.model, "my_model.gguf");
}

TEST_F(ModelFlagsTest, SpellingsOfOtherServersAreKnown) {
  ASSERT_TRUE(parse({"-c", "2k", "-np", "3", "-ub", "256", "-t", "2", "-m", "b.gguf"}).ok());
  EXPECT_EQ(flags_.stack.memory.max_model_len, 2000);
  EXPECT_EQ(flags_.stack.batch.max_num_seqs, 3);
  EXPECT_EQ(flags_.stack.batch.max_num_batched_tokens, 256);
  EXPECT_EQ(flags_.stack.device.threads, 2);
  EXPECT_EQ(flags_.stack.model, "b.gguf");
}

TEST_F(ModelFlagsTest, SglangSpellings) {
  ASSERT_TRUE(parse({"--model-path", "c.gguf", "--context-length", "512", "--chunked_prefill_size",
                     "64", "--max-running-requests", "5"})
                  .ok());
  EXPECT_EQ(flags_.stack.model, "c.gguf");
  EXPECT_EQ(flags_.stack.memory.max_model_len, 512);
  EXPECT_EQ(flags_.stack.batch.max_num_batched_tokens, 64);
  EXPECT_EQ(flags_.stack.batch.max_num_seqs, 5);
}

TEST_F(ModelFlagsTest, TheContextMayBeLeftToTheModel) {
  flags_.stack.memory.max_model_len = 7;
  ASSERT_TRUE(parse({"--max-model-len", "auto"}).ok());
  EXPECT_EQ(flags_.stack.memory.max_model_len, 0);
  ASSERT_TRUE(parse({"--max-model-len=-1"}).ok());
  EXPECT_EQ(flags_.stack.memory.max_model_len, 0);
}

TEST_F(ModelFlagsTest, TheLastValueWins) {
  ASSERT_TRUE(parse({"--max-num-seqs", "4", "--parallel", "9"}).ok());
  EXPECT_EQ(flags_.stack.batch.max_num_seqs, 9);
}

TEST_F(ModelFlagsTest, NoTurnsAFlagOff) {
  ASSERT_TRUE(parse({"--no-enable-chunked-prefill"}).ok());
  EXPECT_FALSE(flags_.stack.engine.scheduler.chunked_prefill);
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
  EXPECT_NE(page.find("(off: --enforce-eager, --no-cuda-graphs, --disable-cuda-graph)"), page.npos)
      << page;
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

TEST_F(ModelFlagsTest, KeysAndValuesHaveAFormat) {
  // What keys and values are kept as stands before what both are.
  EXPECT_EQ(small_kv_format({.both = KvFormat::kInt8, .k = KvFormat::kF16, .v = KvFormat::kF16}),
            std::nullopt);
  ASSERT_TRUE(parse({"--kv-cache-dtype", "int8", "-ctk", "f16"}).ok());
  const KvFormats mixed = choose_kv_formats(flags_.stack.kv_formats, DType::kF32);
  EXPECT_EQ(mixed.k, KvFormat::kF16);
  EXPECT_EQ(mixed.v, KvFormat::kInt8);
  flags_.stack.kv_formats = {};
  ASSERT_TRUE(parse({"-ctk", "q8_0", "-ctv", "q8_0"}).ok());
  const KvFormats of_llama_cpp = choose_kv_formats(flags_.stack.kv_formats, DType::kF16);
  EXPECT_EQ(of_llama_cpp.k, KvFormat::kInt8);
  EXPECT_EQ(of_llama_cpp.v, KvFormat::kInt8);
  EXPECT_TRUE(check_kv_formats(flags_.stack.kv_formats, /*on_gpu=*/false).ok());
  EXPECT_TRUE(check_kv_formats(flags_.stack.kv_formats, /*on_gpu=*/true).ok());
  EXPECT_EQ(choose_gpu_kv_formats(flags_.stack.kv_formats, DType::kBF16).v, KvFormat::kInt8Head);
  EXPECT_TRUE(check_kv_formats({}, /*on_gpu=*/true).ok());
  EXPECT_EQ(choose_kv_formats({}, DType::kBF16).v, KvFormat::kBF16);
  EXPECT_TRUE(check_kv_formats({.both = KvFormat::kBF16}, /*on_gpu=*/false)
                  .message()
                  .starts_with("--kv-cache-dtype bf16 is not supported on a CPU"));
  EXPECT_NE(parse({"--kv-cache-dtype", "fp8_e5m2"}).message().find("--kv-cache-dtype"),
            std::string::npos);
}

TEST_F(ModelFlagsTest, EightBitFloatsAreOfGpus) {
  for (const char* name : {"fp8", "fp8_e4m3"}) {
    flags_.stack.kv_formats = {};
    ASSERT_TRUE(parse({"--kv-cache-dtype", name}).ok());
    const KvFormatOptions& formats = flags_.stack.kv_formats;
    EXPECT_TRUE(check_kv_formats(formats, /*on_gpu=*/true).ok());
    EXPECT_EQ(check_kv_formats(formats, /*on_gpu=*/false).message(),
              "--kv-cache-dtype fp8 is of GPUs: on a CPU use int8");
    const KvFormats chosen = choose_gpu_kv_formats(formats, DType::kBF16);
    EXPECT_EQ(chosen.k, KvFormat::kFp8);
    EXPECT_EQ(chosen.v, KvFormat::kFp8);
  }
  EXPECT_EQ(choose_gpu_kv_formats({.both = KvFormat::kF16}, DType::kBF16).v, KvFormat::kBF16);
  EXPECT_EQ(choose_gpu_kv_formats({.both = KvFormat::kInt8}, DType::kBF16).k, KvFormat::kInt8Head);
  EXPECT_NE(check_kv_formats({.both = KvFormat::kF32}, /*on_gpu=*/true).message().find("int8"),
            std::string::npos);
  EXPECT_EQ(
      check_kv_formats({.k = KvFormat::kInt8}, /*on_gpu=*/true).message(),
      "--cache-type-k int8: on a GPU keys and values are kept alike: use --kv-cache-dtype int8");
  EXPECT_FALSE(check_kv_formats({.k = KvFormat::kInt8, .v = KvFormat::kFp8}, /*on_gpu=*/true).ok());
  for (const char* name : {"int4", "q4_0"}) {
    flags_.stack.kv_formats = {};
    ASSERT_TRUE(parse({"--kv-cache-dtype", name}).ok());
    const KvFormatOptions& four = flags_.stack.kv_formats;
    EXPECT_TRUE(check_kv_formats(four, /*on_gpu=*/true).ok());
    EXPECT_TRUE(check_kv_formats(four, /*on_gpu=*/false).ok());
    EXPECT_EQ(choose_gpu_kv_formats(four, DType::kBF16).k, KvFormat::kInt4Head);
    EXPECT_EQ(choose_kv_formats(four, DType::kF16).v, KvFormat::kInt4);
  }
  EXPECT_EQ(
      check_kv_formats({.v = KvFormat::kFp8}, /*on_gpu=*/true).message(),
      "--cache-type-v fp8: on a GPU keys and values are kept alike: use --kv-cache-dtype fp8");
  EXPECT_TRUE(check_kv_formats({.k = KvFormat::kFp8, .v = KvFormat::kFp8}, /*on_gpu=*/true).ok());
}

TEST_F(ModelFlagsTest, SmallFormatsAreRefusedByNameWhereTheyCannotBe) {
  const KvFormatOptions fp8{.both = KvFormat::kFp8}, int8{.both = KvFormat::kInt8};
  ModelSpec spec{.kv = {{.kv_heads = 2, .k_dim = 64, .v_dim = 64}, {.kv_heads = 0}}};
  constexpr KvMemoryKind kPaged = KvMemoryKind::kPaged;
  EXPECT_TRUE(check_gpu_kv(fp8, "m", spec, kPaged).ok());
  EXPECT_EQ(check_gpu_kv(fp8, "m", spec, KvMemoryKind::kVirtual).message(),
            "--kv-cache-dtype fp8 is for --kv-memory paged, not virtual: leave one out");
  EXPECT_EQ(check_gpu_kv(int8, "m", spec, KvMemoryKind::kContiguous).message(),
            "--kv-cache-dtype int8 is for --kv-memory paged, not contiguous: leave one out");
  EXPECT_TRUE(check_gpu_kv({}, "m", spec, KvMemoryKind::kVirtual).ok());
  const KvFormatOptions int4{.both = KvFormat::kInt4};
  EXPECT_TRUE(check_gpu_kv(int4, "m", spec, kPaged).ok());
  spec.kv.front().k_dim = spec.kv.front().v_dim = 80;
  EXPECT_TRUE(check_gpu_kv(int8, "m", spec, kPaged).ok());
  EXPECT_EQ(
      check_gpu_kv(int4, "m", spec, kPaged).message(),
      "m: --kv-cache-dtype int4: its heads have 80 components, of which 32 at a time are kept "
      "in 4 bits: use int8");
  spec.kv.front().k_dim = spec.kv.front().v_dim = 64;
  spec.kv.push_back({.kv_heads = 1, .k_dim = 576, .v_dim = 512, .v_aliases_k = true});
  EXPECT_EQ(check_gpu_kv(fp8, "m", spec, kPaged).message(),
            "m: --kv-cache-dtype fp8: its layers keep latents, which are not kept in 8 bits: use "
            "auto");
  EXPECT_TRUE(check_gpu_kv({}, "m", spec, kPaged).ok());
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
  for (const char* name : {"--swap-space", "--enable-reasoning", "--ngl", "--trust-remote-code"}) {
    EXPECT_NE(told.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 4);
}

TEST_F(ModelFlagsTest, TheOnlyValueThereIsIsTakenInSilence) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(
      parse({"-tp", "1", "--kv_cache_dtype", "auto", "-ctk", "f16", "--block-size=16"}).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const std::string message = parse({"--decode-context-parallel-size", "2"}).message();
  EXPECT_TRUE(
      message.starts_with("--decode-context-parallel-size: 2 is not supported, only 1: a model "
                          "runs whole on one device"))
      << message;
}

TEST_F(ModelFlagsTest, NamesOfLmdeployAndTensorRt) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(parse({"--session-len", "4096", "--max-prefill-token-num", "512", "--quant-policy",
                     "0", "--cache-max-entry-count", "0.8", "--kv_cache_free_gpu_memory_fraction",
                     "0.9", "-dev", "none"})
                  .ok());
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(flags_.stack.memory.max_model_len, 4096);
  EXPECT_EQ(flags_.stack.batch.max_num_batched_tokens, 512);
  for (const char* name : {"--cache-max-entry-count", "--kv-cache-free-gpu-memory-fraction"}) {
    EXPECT_NE(told.find(std::string(name) + " is ignored: --gpu-memory-utilization"), told.npos)
        << told;
  }
  EXPECT_TRUE(parse({"--quant-policy", "8"}).message().starts_with("--quant-policy: 8 is not "));
}

TEST_F(ModelFlagsTest, AHiddenFlagWithoutItsValueIsNamed) {
  const std::string message = parse({"x.gguf", "--cache-ram"}).message();
  EXPECT_TRUE(message.starts_with("--cache-ram: ")) << message;
}

TEST_F(ModelFlagsTest, FlagsThatWouldChangeAnswersAreRefusedWithTheReason) {
  const std::string message = parse({"--tool-parser-plugin", "x.py"}).message();
  EXPECT_TRUE(message.starts_with("--tool-parser-plugin: is not supported: nothing is loaded"))
      << message;
  EXPECT_FALSE(parse({"--enable-lora"}).ok());
  EXPECT_FALSE(parse({"--ssl-ciphers", "x"}).ok());
}

// llama.cpp's -fa: its value may be missing, and what follows is no value then.
TEST_F(ModelFlagsTest, AnOptionalWordEatsNoFlagAndNoModel) {
  testing::internal::CaptureStderr();
  const std::vector<std::vector<std::string>> lines = {
      {"-m", "x.gguf", "-fa", "-c", "8192"},  {"-fa", "x.gguf", "-c", "8192"},
      {"-fa", "on", "x.gguf", "-c", "8192"},  {"--flash-attn", "auto", "x.gguf", "-c", "8192"},
      {"--fa=off", "x.gguf", "-c", "8192"},   {"x.gguf", "-c", "8192", "-fa"},
      {"--fit", "x.gguf", "-c", "8192"},      {"x.gguf", "-c", "8192", "--fit", "off"},
      {"--hf-token", "-c", "8192", "x.gguf"}, {"--flash_attn", "x.gguf", "-c", "8192"},
  };
  for (const std::vector<std::string>& line : lines) {
    CLI::App app{"", "test"};
    ModelFlags flags;
    add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
    add_engine_flags(app, flags);
    const Status status = parse_arguments(app, line).status();
    EXPECT_TRUE(status.ok()) << line[0] << " " << line[1] << ": " << status.message();
    EXPECT_EQ(flags.stack.model, "x.gguf") << line[0] << " " << line[1];
    EXPECT_EQ(flags.stack.memory.max_model_len, 8192) << line[0] << " " << line[1];
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), static_cast<int64_t>(lines.size())) << told;
}

// Whole start lines as people have them: nothing in them may be read as something else.
TEST_F(ModelFlagsTest, StartLinesOfOtherServersKeepTheirModelAndContext) {
  testing::internal::CaptureStderr();
  const std::vector<std::string> lines = {
      "-m x.gguf -ngl 99 -fa -ctk f16 -ctv f16 -cram 2048 --cache-reuse 256 -ts 1,1 -sm none -mg 0 "
      "--no-mmap --mlock --jinja -np 2 -cb -ub 256 -b 2048 --no-webui --fit on -fitt 512 -ncmoe 4 "
      "-ot exps=CPU --reasoning-format auto -n -1 --slots --metrics --log-colors off -lv 3 "
      "--threads-batch 4 --repeat-last-n -1 --mirostat 0 --typical 1.0 --no-context-shift "
      "--models-max 1 --no-mmproj -c 8192",
      "x.gguf --no-enable-lora --enable-expert-parallel --max-loras 4 --max-lora-rank 16 "
      "--spec-method ngram --spec-tokens 3 --no-enable-prompt-tokens-details --no-enforce-eager "
      "--swap-space 4 -O3 --disable-log-requests --all2all-backend naive --no-enable-sleep-mode "
      "--max-model-len 8192",
      "--model-path x.gguf --ep 1 --ep-size 1 --enable-hierarchical-cache --hicache-ratio 2 "
      "--radix-eviction-policy lfu --enable-deterministic-inference --disable-cuda-graph "
      "--cuda-graph-max-bs 8 --watchdog-timeout 300 --disaggregation-mode null "
      "--max-prefill-tokens "
      "4096 --speculative-algorithm NGRAM --enable-torch-compile --context-length 8192",
  };
  for (const std::string& line : lines) {
    CLI::App app{"", "test"};
    ModelFlags flags;
    add_model_flags(app, flags, ModelArgument::kFlagOrPositional);
    add_engine_flags(app, flags);
    const Status status = parse_arguments(app, CLI::detail::split(line, ' ')).status();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(flags.stack.model, "x.gguf") << line;
    EXPECT_EQ(flags.stack.memory.max_model_len, 8192) << line;
  }
  testing::internal::GetCapturedStderr();
}

TEST_F(ModelFlagsTest, WhatWouldLoadOtherWeightsOrChangeAnswersIsRefusedByItsName) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--speculative-config", R"({"model":1})"},
       "--speculative-config: model is not the path of a draft model"},
      {{"--speculative-config", R"({"method":"lookahead"})"},
       "--speculative-config: method lookahead is not supported: there are none, ngram, "
       "draft_model, "
       "eagle, eagle3 and medusa"},
      {{"--speculative-config", R"({"draft_tensor_parallel_size":2})"},
       "--speculative-config: draft_tensor_parallel_size is not"},
      {{"--tokenizer-revision", "v2"}, "--tokenizer-revision: is not supported"},
      {{"--hf-overrides", "{}"}, "--hf-overrides: is not supported: a model is used as its file"},
      {{"--rope-freq-scale", "0.5"}, "--rope-freq-scale: is not supported"},
      {{"--kv-events-config", "{}"}, "--kv-events-config: is not supported"},
      {{"--pooler-config", "{}"}, "--pooler-config: is not supported"},
      {{"--tool-server", "x"}, "--tool-server: is not supported"},
      {{"--headless"}, "--headless: is not supported"},
      {{"--slot-save-path", "x"}, "--slot-save-path: is not supported: there are no routes"},
      {{"--models-dir", "x"}, "--models-dir: is not supported: a server has one model"},
      {{"-mu", "http://x"}, "--mu: is not supported: nothing is downloaded"},
      {{"--samplers", "top_k"}, "--samplers: is not supported"},
      {{"--mirostat", "2"}, "--mirostat: 2 is not supported, only 0"},
      {{"--reasoning-format", "none"}, "--reasoning-format: none is not supported"},
      {{"--ep-size", "8"}, "--ep-size: 8 is not supported, only 1"},
      {{"--enable-priority-scheduling"}, "--enable-priority-scheduling: is not supported: use"},
  };
  for (const auto& [line, message] : cases) {
    const std::string got = parse(line).message();
    EXPECT_TRUE(got.starts_with(message)) << got;
  }
}

// ---- vectors and scores

Result<PoolingOptions> pooling_by(std::vector<std::string> arguments) {
  CLI::App app{"", "test"};
  PoolingOptions options;
  ModelFlags flags;
  add_pooling_flags(app, options);
  add_model_flags(app, flags);
  HR_RETURN_IF_ERROR(parse_arguments(app, std::move(arguments)).status());
  return options;
}

TEST(PoolingFlags, AreThoseOfOtherProgramsToo) {
  EXPECT_FALSE(pooling_by({})->asks());
  for (const char* flag :
       {"--embedding", "--embeddings", "--is-embedding", "--task=embed", "--task=embedding"}) {
    const PoolingOptions options = *pooling_by({flag});
    EXPECT_EQ(options.runner, RunnerChoice::kPooling) << flag;
    EXPECT_EQ(options.convert, ConvertChoice::kEmbed) << flag;
  }
  for (const char* flag : {"--rerank", "--reranking", "--task=classify"}) {
    EXPECT_EQ(pooling_by({flag})->convert, ConvertChoice::kClassify) << flag;
  }
  EXPECT_EQ(pooling_by({"--task", "score"})->runner, RunnerChoice::kPooling);
  EXPECT_EQ(pooling_by({"--task", "generate"})->runner, RunnerChoice::kGenerate);
  EXPECT_FALSE(pooling_by({"--task", "auto"})->asks());
  EXPECT_EQ(pooling_by({"--runner", "pooling", "--convert", "embed"})->convert,
            ConvertChoice::kEmbed);
  EXPECT_EQ(pooling_by({"--pooling", "mean"})->pooling, PoolingChoice::kMean);
}

TEST(PoolingFlags, AreReadFromJson) {
  const PoolingOptions pooler =
      *pooling_by({"--pooler-config", R"({"pooling_type": "CLS", "normalize": false})"});
  EXPECT_EQ(pooler.pooling, PoolingChoice::kFirst);
  EXPECT_EQ(pooler.normalise, false);
  const PoolingOptions tokens = *pooling_by(
      {"--hf-overrides", R"({"classifier_from_token": ["no", "yes"], "architectures": ["x"],
                             "is_original_qwen3_reranker": true})"});
  EXPECT_EQ(tokens.classifier_tokens, (std::vector<std::string>{"no", "yes"}));
  EXPECT_TRUE(tokens.two_way && tokens.asks());
  const std::pair<std::vector<std::string>, std::string> refused[] = {
      {{"--pooler-config", "[]"}, "is not a JSON object"},
      {{"--pooler-config", R"({"pooling_type": "STEP"})"}, "pooling_type must be one of LAST"},
      {{"--pooler-config", R"({"normalize": 1})"}, "normalize must be true or false"},
      {{"--pooler-config", R"({"step_tag_id": 1})"}, "step_tag_id is not supported"},
      {{"--hf-overrides", R"({"rope_theta": 1})"}, "rope_theta is not supported"},
      {{"--hf-overrides", R"({"classifier_from_token": []})"}, "must be a list of tokens"},
      {{"--hf-overrides", R"({"classifier_from_token": [1]})"}, "must be a list of tokens"},
      {{"--task", "reward"}, "--task"},
  };
  for (const auto& [line, message] : refused) {
    const std::string got = pooling_by(line).status().message();
    EXPECT_NE(got.find(message), std::string::npos) << got;
  }
}

TEST_F(ModelFlagsTest, HeadsAreNamedAsVllmDoes) {
  for (const auto& [name, method] : {std::pair("eagle", ProposalMethod::kEagle),
                                     {"eagle3", ProposalMethod::kEagle3},
                                     {"medusa", ProposalMethod::kMedusa}}) {
    ASSERT_TRUE(
        parse({"--speculative-config", fmt::format(R"({{"method":"{}","model":"d"}})", name)})
            .ok());
    EXPECT_EQ(flags_.stack.draft_model, "d");
    EXPECT_EQ(flags_.stack.engine.scheduler.proposals.method, method);
  }
}

TEST_F(ModelFlagsTest, ADraftModelIsNamedByAnyOfItsFlags) {
  const std::vector<std::string> lines[] = {
      {"-md", "d.gguf", "--draft-max", "7", "--draft-p-min", "0.5"},
      {"--model-draft", "d.gguf", "--spec-draft-n-max", "7", "--spec-draft-p-min", "0.5"},
      {"--speculative-draft-model-path", "d.gguf", "--draft", "7", "--draft-p-min", "0.5"},
      {"--speculative-config",
       R"({"method":"draft_model","model":"d.gguf","num_speculative_tokens":7})", "--draft-p-min",
       "0.5"}};
  for (const auto& line : lines) {
    ASSERT_TRUE(parse(line).ok()) << line.front();
    const ProposalOptions& proposals = flags_.stack.engine.scheduler.proposals;
    EXPECT_EQ(flags_.stack.draft_model, "d.gguf") << line.front();
    EXPECT_EQ(proposals.tokens_max, 7) << line.front();
    EXPECT_EQ(proposals.chance_min, 0.5) << line.front();
  }
}

TEST_F(ModelFlagsTest, SpeculationIsAskedForByFlagsOrAsJson) {
  EXPECT_TRUE(parse({"--speculative-config",
                     R"({"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":6})"})
                  .ok());
  const ProposalOptions& proposals = flags_.stack.engine.scheduler.proposals;
  EXPECT_EQ(proposals.method, ProposalMethod::kNgram);
  EXPECT_EQ(proposals.tokens_max, 3);
  EXPECT_EQ(proposals.lookup_max, 6);
  const auto refused = [&](const char* json) {
    return std::string(parse({"--speculative-config", json}).message());
  };
  EXPECT_NE(
      refused(R"({"method":"mlp_speculator"})").find("method mlp_speculator is not supported"),
      std::string::npos);
  EXPECT_NE(refused(R"({"num_speculative_tokens":99})").find("between 1 and 16"),
            std::string::npos);
  EXPECT_NE(refused(R"({"prompt_lookup_min":9,"prompt_lookup_max":3})")
                .find("is above prompt_lookup_max"),
            std::string::npos);
  EXPECT_NE(refused(R"({"synthetic_acceptance_rate":1.5})").find("between 0 and 1"),
            std::string::npos);
  EXPECT_NE(refused("[]").find("is not a JSON object"), std::string::npos);
  EXPECT_TRUE(
      parse({"--speculative-config", R"({"method":"ngram","tree_width":3,"tree_tokens":40})"})
          .ok());
  EXPECT_EQ(proposals.tree_width, 3);
  EXPECT_EQ(proposals.tree_tokens, 40);
  EXPECT_NE(refused(R"({"tree_width":9})").find("tree_width is not a whole number between 1 and 8"),
            std::string::npos);
  EXPECT_NE(refused(R"({"tree_tokens":65})").find("between 1 and 64"), std::string::npos);
  EXPECT_TRUE(parse({"--spec-method", "ngram", "--spec-tree-width", "2"}).ok());
  EXPECT_EQ(proposals.tree_width, 2);
  EXPECT_FALSE(parse({"--speculative-config", "{"}).ok());
  EXPECT_TRUE(parse({"--speculative-config", R"({"prompt_lookup_max":1})"}).ok());
  EXPECT_EQ(proposals.lookup_min, 1);
}

TEST_F(ModelFlagsTest, ATreeIsGivenAsOtherServersHaveIt) {
  const ProposalOptions& proposals = flags_.stack.engine.scheduler.proposals;
  for (const char* const tree :
       {R"({"speculative_token_tree":"[(0,), (1,), (0, 0), (1, 0), (0, 1), (0, 0, 0)]"})",
        R"({"num_speculative_tokens":6,"speculative_token_tree":
            [[0],[0,0],[0,0,0],[1],[0,1],[1,0]]})"}) {
    ASSERT_TRUE(parse({"--speculative-config", tree}).ok()) << tree;
    EXPECT_EQ(proposals.tree, (TokenTree{{0, 1, 0, 1, 0, 0}, {-1, -1, 0, 0, 1, 2}}));
    EXPECT_EQ(proposals.tokens_max, 3);
    EXPECT_EQ(proposals.tree_width, 2);
    EXPECT_EQ(proposals.tree_tokens, 6);
  }
  ASSERT_TRUE(
      parse({"--speculative-config", R"({"speculative_token_tree":"[(0,), (0, 0)]"})"}).ok());
  EXPECT_TRUE(proposals.tree.empty());
  EXPECT_EQ(proposals.tree_width, 1);
  EXPECT_EQ(proposals.tokens_max, 2);
  const auto refused = [&](const char* json) {
    return std::string(parse({"--speculative-config", json}).message());
  };
  for (const auto& [json, said] :
       {std::pair{R"({"speculative_token_tree":"[(0,), (2,)]"})", "(2) stands alone or twice"},
        {R"({"speculative_token_tree":"[(0,), (0,)]"})", "(0) stands alone or twice"},
        {R"({"speculative_token_tree":"[(0,), (1, 0)]"})", "(1, 0) stands alone or twice"},
        {R"({"speculative_token_tree":"[(8,)]"})", "a rank is not between 0 and 7"},
        {R"({"speculative_token_tree":"(0"})", "cannot be read"},
        {R"({"speculative_token_tree":[]})", "is no list of tuples"},
        {R"({"speculative_token_tree":"[(0,),(1,)]","tree_width":2})", "tree_width does not go"},
        {R"({"speculative_token_tree":"[(0,),(1,)]","num_speculative_tokens":3})",
         "is not the 2 tokens of speculative_token_tree"}}) {
    EXPECT_NE(refused(json).find(said), std::string::npos) << json << ": " << refused(json);
  }
  ASSERT_TRUE(parse({"--speculative-num-steps", "3", "--speculative-eagle-topk", "4",
                     "--speculative-num-draft-tokens", "16"})
                  .ok());
  EXPECT_EQ(proposals.tokens_max, 3);
  EXPECT_EQ(proposals.tree_width, 4);
  EXPECT_EQ(proposals.tree_tokens, 15);
  EXPECT_FALSE(parse({"--speculative-num-draft-tokens", "1"}).ok());
}

TEST_F(ModelFlagsTest, MembersOfAFlagWithJsonMayComeApart) {
  const auto joined = [&](std::vector<std::string> arguments) {
    return normalise_arguments(app_, std::move(arguments));
  };
  const std::vector<std::string> whole = {
      R"(--speculative-config={"method":"ngram","list":[1,"b"],"in":{"a":{"b":0.5}}})", "-t", "2"};
  EXPECT_EQ(
      joined({"--speculative_config.method", "ngram", "-t", "2", "--speculative-config.list+=1",
              "--speculative-config.list+", "b", "--speculative-config.in.a.b", "0.5"}),
      whole);
  EXPECT_EQ(joined({"-sc.method", "ngram"}),
            std::vector<std::string>{R"(--sc={"method":"ngram"})"});
  // What is no member of a flag stays as it is.
  for (const char* argument : {"--1.5", "x.gguf", "--nothing.a", "--ignore-eos.a", "--threads."}) {
    EXPECT_EQ(joined({argument, "7"}), (std::vector<std::string>{argument, "7"}));
  }
  EXPECT_EQ(joined({"--", "--speculative-config.method", "x"}).size(), 3u);
  ASSERT_TRUE(parse({"x.gguf", "--speculative-config.num_speculative_tokens", "3",
                     "--speculative-config.method=ngram"})
                  .ok());
  EXPECT_EQ(flags_.stack.engine.scheduler.proposals.tokens_max, 3);
}

TEST_F(ModelFlagsTest, EverySwitchHasATwin) {
  ASSERT_TRUE(parse({"x.gguf", "--ignore-eos", "--no-ignore-eos"}).ok());
  EXPECT_FALSE(sampling_.sampling.ignore_eos);
  std::vector<std::string> line = {"x.gguf"};
  for (const CLI::Option* option : app_.get_options()) {
    const auto& names = option->get_lnames();
    const bool is_switch = option->get_items_expected_max() == 0 && !names.empty();
    if (!is_switch || names[0] == "help" || names[0].starts_with("no-")) continue;
    line.push_back("--no-" + names[0]);
  }
  EXPECT_GT(line.size(), 100u);
  testing::internal::CaptureStderr();
  const Status status = parse(line);
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(ModelFlagsTest, HelpHidesThem) {
  const std::string page = help_page(app_);
  EXPECT_EQ(page.find("--swap-space"), std::string::npos);
  EXPECT_NE(page.find("--max-model-len N"), std::string::npos);
  EXPECT_NE(page.find("auto|float32"), std::string::npos);
  EXPECT_NE(page.find("(also --ctx-size"), std::string::npos);
}

}  // namespace
}  // namespace headrace::command_line_test
