#include "weights/generation_config.h"

#include <gtest/gtest.h>

#include "weights/gguf_fixture.h"

namespace headrace::generation_config_test {
namespace {

Result<SamplingDefaults> parse(std::string_view text) {
  return sampling_defaults_from_json(*parse_json(text), "generation_config.json");
}

TEST(GenerationConfig, ReadsWhatIsKnown) {
  const auto all = parse(R"({"do_sample": true, "eos_token_id": [1, 2], "temperature": 0.7,
      "top_p": 0.8, "top_k": 20, "min_p": 0, "repetition_penalty": 1.05, "max_new_tokens": 2048})");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(*all, (SamplingDefaults{.temperature = 0.7f,
                                    .top_p = 0.8f,
                                    .top_k = 20,
                                    .min_p = 0.0f,
                                    .repetition_penalty = 1.05f,
                                    .max_new_tokens = 2048}));
  EXPECT_EQ(to_string(*all),
            "temperature 0.7, top_p 0.8, top_k 20, min_p 0, repetition_penalty 1.05, "
            "max_new_tokens 2048");
  EXPECT_EQ(*parse(R"({"temperature": null, "transformers_version": "4.51"})"), SamplingDefaults());
  EXPECT_EQ(to_string(SamplingDefaults()), "");
  EXPECT_EQ(to_string(SamplingDefaults{.top_k = 3, .seed = 7}), "top_k 3, seed 7");
  EXPECT_EQ(parse(R"({"top_k": -1})")->top_k, 0);
}

TEST(GenerationConfig, WrongValuesNameFileKeyAndRange) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature": "warm"})", "temperature: must be a number in [0, 100]"},
      {R"({"temperature": -0.1})", "temperature: must be a number in [0, 100]"},
      {R"({"top_p": 0})", "top_p: must be a number in (0, 1]"},
      {R"({"top_p": 1.01})", "top_p: must be a number in (0, 1]"},
      {R"({"top_k": 2.5})", "top_k: must be an integer in [-1, 2147483647]"},
      {R"({"min_p": true})", "min_p: must be a number in [0, 1]"},
      {R"({"repetition_penalty": 0})", "repetition_penalty: must be a number in [0.01, 100]"},
      {R"({"max_new_tokens": 0})", "max_new_tokens: must be an integer in [1, 2147483647]"},
      {"[]", "must be a JSON object"},
  };
  for (const auto& [text, expected] : cases) {
    const Status status = parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << text;
    EXPECT_EQ(status.message(), std::string("generation_config.json: ") + expected);
  }
}

TEST(GenerationConfig, ReadsGgufKeys) {
  GgufBuilder builder = tiny_llama();
  builder.add_f32("general.sampling.temp", 0.5f).add_u32("general.sampling.top_k", 64);
  builder.add_f32("general.sampling.penalty_repeat", 1.1f);
  const auto read = [](const GgufBuilder& from) {
    const std::string data = from.build();
    auto file = GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
    CHECK(file.ok());
    return sampling_defaults_from_gguf(**file);
  };
  EXPECT_EQ(*read(tiny_llama()), SamplingDefaults());
  EXPECT_EQ(*read(builder),
            (SamplingDefaults{.temperature = 0.5f, .top_k = 64, .repetition_penalty = 1.1f}));
  builder.add_f32("general.sampling.top_p", 2.0f);
  EXPECT_EQ(read(builder).status().message(),
            "t.gguf: general.sampling.top_p: must be a number in (0, 1]");
}

TEST(GenerationConfig, WhatIsChosenGoesBeforeWhatIsSuggested) {
  const SamplingDefaults model{.temperature = 0.7f, .top_k = 20};
  const SamplingDefaults chosen{.temperature = 0.0f, .top_p = 0.5f};
  EXPECT_EQ(chosen.over(model),
            (SamplingDefaults{.temperature = 0.0f, .top_p = 0.5f, .top_k = 20}));
  SamplingParams sampling{.top_p = 0.9f, .min_p = 0.1f};
  model.apply_to(sampling);
  EXPECT_EQ(sampling.temperature, 0.7f);
  EXPECT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.min_p, 0.1f);
}

}  // namespace
}  // namespace headrace::generation_config_test
