// llama.cpp's API over HTTP on a model of bytes, and how its prompts become ids. (With a real
// model: tests/server/test_llama_cpp.py.)
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "server/llama_request.h"
#include "server/server_fixture.h"
#include "text/vocab_fixture.h"

namespace headrace::server_llama_test {
namespace {

constexpr std::string_view kCompletion = "/completion";

// Bytes as the tiny vocabulary has them, behind the tokens of `marks`.
std::unique_ptr<Tokenizer> tokenizer_with(std::string_view marks) {
  std::string text(marks);
  for (char c = 'a'; c <= 'z'; ++c) text += fmt::format("1 {}\n", c);
  text += "1 \xC4\x8A\n1 .\n";  // a line break, as byte-level vocabularies spell it
  auto tokenizer = Tokenizer::create(vocab_from_text(text, "gpt-2"));
  CHECK(tokenizer.ok());
  return std::move(*tokenizer);
}

TEST(ServerLlama, TokensToFillInWithAreFoundByTheirNames) {
  for (std::string_view names :
       {"3 <|fim_prefix|>\n3 <|fim_suffix|>\n3 <|fim_middle|>\n",
        "3 <fim_prefix>\n3 <fim_suffix>\n3 <fim_middle>\n",
        "3 \xE2\x96\x81<PRE>\n3 \xE2\x96\x81<SUF>\n3 \xE2\x96\x81<MID>\n"}) {
    const auto marks = find_fill_in_tokens(vocab_from_text(names, "gpt-2"));
    ASSERT_TRUE(marks) << names;
    EXPECT_EQ(marks->prefix, 0);
    EXPECT_EQ(marks->suffix, 1);
    EXPECT_EQ(marks->middle, 2);
    EXPECT_EQ(marks->file, -1);
  }
  EXPECT_FALSE(find_fill_in_tokens(vocab_from_text("3 <fim_prefix>\n3 <fim_suffix>\n", "gpt-2")));
  EXPECT_FALSE(find_fill_in_tokens(tiny_vocab()));
}

TEST(ServerLlama, AnInfillIsItsPartsBetweenItsMarks) {
  const auto tokenizer = tokenizer_with(
      "3 <|fim_prefix|>\n3 <|fim_suffix|>\n3 <|fim_middle|>\n3 <|file_sep|>\n3 <|repo_name|>\n");
  const auto marks = find_fill_in_tokens(tokenizer->vocab());
  ASSERT_TRUE(marks);
  EXPECT_EQ(marks->ends, (std::vector<TokenId>{3, 4}));
  LlamaRequest request;
  request.before = "ab";
  request.behind = "cd";
  const auto text = [&] {
    return tokenizer->decode(*encode_infill(*tokenizer, *marks, request, 1000), false);
  };
  EXPECT_EQ(text(), "<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>");
  request.prompts = {{std::string("x"), std::vector<TokenId>{5, 6}}};
  EXPECT_EQ(text(), "<|fim_prefix|>abxab<|fim_suffix|>cd<|fim_middle|>");
  request.others = {{"f.a", "yz"}};
  EXPECT_EQ(text(),
            "<|repo_name|>myproject\n<|file_sep|>f.a\nyz<|file_sep|>filename\n"
            "<|fim_prefix|>abxab<|fim_suffix|>cd<|fim_middle|>");
  FillInTokens no_files = *marks;
  no_files.file = -1;
  const auto refused = encode_infill(*tokenizer, no_files, request, 1000);
  EXPECT_EQ(refused.status().field(), "input_extra");
}

TEST(ServerLlama, PromptsOfPiecesAreEncodedPieceByPiece) {
  ServerFixture f;
  const auto prompt = [&](std::string_view json) {
    EXPECT_EQ(f.post(kCompletion, fmt::format(R"({{"prompt":{}}})", json)).status, 200) << json;
    return f.model.engine->last_request().prompt;
  };
  const TokenId bos = prompt(R"("a")")[0];
  const TokenId a = f.model.byte_token('a'), b = f.model.byte_token('b');
  EXPECT_EQ(prompt(R"("a")"), (std::vector<TokenId>{bos, a}));
  EXPECT_EQ(prompt(fmt::format(R"(["b", {}, "b"])", a)), (std::vector<TokenId>{bos, b, a, b}));
  EXPECT_EQ(prompt(fmt::format(R"([{}, "b"])", a)), (std::vector<TokenId>{a, b}));
  // Text stays text unless it is asked for.
  EXPECT_EQ(prompt(R"("<|im_start|>")").size(), 13u);
  EXPECT_EQ(prompt(R"("<|im_start|>", "parse_special": true)").size(), 2u);
}

TEST(ServerLlama, DefaultsAreLlamaCppsWhereNobodySaysMore) {
  ServerFixture f;
  ASSERT_EQ(f.post(kCompletion, R"({"prompt":"a"})").status, 200);
  const SamplingParams sampling = f.model.engine->last_request().sampling;
  EXPECT_EQ(sampling.temperature, 0.8f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.top_p, 0.95f);
  EXPECT_EQ(sampling.min_p, 0.05f);
  EXPECT_EQ(sampling.penalty_window, 64);
  EXPECT_EQ(sampling.max_tokens, 4094);  // what the context leaves
}

TEST(ServerLlama, PropsTellTheDefaultsThatHold) {
  ServerFixture f;
  const Json props = f.get("/props").json();
  const Json& params = at(at(props, "default_generation_settings"), "params");
  EXPECT_EQ(static_cast<float>(at(params, "temperature").as_double()), 0.8f);
  EXPECT_EQ(at(params, "top_k"), Json(40));
  EXPECT_EQ(static_cast<float>(at(params, "top_p").as_double()), 0.95f);
  EXPECT_EQ(static_cast<float>(at(params, "min_p").as_double()), 0.05f);
  EXPECT_EQ(at(params, "repeat_last_n"), Json(64));
}

TEST(ServerLlama, APromptMayBeAnObject) {
  ServerFixture f;
  const auto post = [&](std::string_view prompt) {
    return f.post(kCompletion, fmt::format(R"({{"prompt":{}}})", prompt));
  };
  ASSERT_EQ(post(R"("ab")").status, 200);
  const auto plain = f.model.engine->last_request().prompt;
  ASSERT_EQ(post(R"({"prompt_string":"ab","multimodal_data":[]})").status, 200);
  EXPECT_EQ(f.model.engine->last_request().prompt, plain);
  EXPECT_EQ(post(R"([{"prompt_string":"ab"},"a"])").json().as_array().size(), 2u);
  EXPECT_EQ(post(R"({"prompt_string":"ab","multimodal_data":["x"]})").error_param(), "prompt");
  EXPECT_EQ(post(R"({"prompt":"ab"})").error_param(), "prompt");
  EXPECT_EQ(post(R"("")").status, 200);
}

TEST(ServerLlama, BiasesMayBeOfTexts) {
  ServerFixture f;
  const auto biases = [&](std::string_view list) {
    EXPECT_EQ(f.post(kCompletion, fmt::format(R"({{"prompt":"a","logit_bias":{}}})", list)).status,
              200);
    return f.model.engine->last_request().sampling.logit_bias;
  };
  const TokenId a = f.model.byte_token('a'), b = f.model.byte_token('b');
  using Biases = std::vector<std::pair<TokenId, float>>;
  Biases words;  // of each of their tokens
  for (const TokenId id : *f.model.tokenizer->encode("a b?a", {.add_special = false})) {
    words.emplace_back(id, -5);
  }
  ASSERT_GT(words.size(), 1u);
  const std::set<std::pair<TokenId, float>> once(words.begin(), words.end());
  EXPECT_EQ(biases(R"([["a b?a",-5]])").size(), once.size());
  EXPECT_EQ(biases(R"([["a b?a",-5]])").front(), words.front());
  EXPECT_EQ(biases(fmt::format(R"([[{},1],["b",false]])", a)), (Biases{{a, 1}, {b, -100}}));
  EXPECT_EQ(biases(fmt::format(R"([[{},1],["a",2]])", a)), (Biases{{a, 2}}));
  for (const char* bad : {R"([["a","x"]])", R"([["a",101]])", R"([["a"]])", R"([[[1],2]])"}) {
    EXPECT_EQ(
        f.post(kCompletion, fmt::format(R"({{"prompt":"a","logit_bias":{}}})", bad)).error_param(),
        "logit_bias")
        << bad;
  }
}

TEST(ServerLlama, AnswersSayHowTheyEnded) {
  ServerFixture f({}, "hello\nworld");
  const auto ask = [&](std::string_view fields) {
    return f.post(kCompletion, fmt::format(R"({{"prompt":"a"{}}})", fields)).json();
  };
  const Json end = ask("");
  EXPECT_EQ(at(end, "content"), Json("hello\nworld"));
  EXPECT_EQ(at(end, "stop_type"), Json("eos"));
  EXPECT_EQ(at(end, "has_new_line"), Json(true));
  EXPECT_EQ(at(ask(R"(,"n_predict":3)"), "stop_type"), Json("limit"));
  const Json word = ask(R"(,"stop":["\nw"])");
  EXPECT_EQ(at(word, "stop_type"), Json("word"));
  EXPECT_EQ(at(word, "stopping_word"), Json("\nw"));
  EXPECT_EQ(at(word, "content"), Json("hello"));
  EXPECT_EQ(at(word, "has_new_line"), Json(false));
}

}  // namespace
}  // namespace headrace::server_llama_test
