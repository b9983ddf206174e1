// Tiny random decoders that give vectors and scores against transformers
// (tests/golden/make_pooled_decoder_cases.py wrote both), and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

#include "base/json.h"
#include "stack/embedding_stack.h"
#include "text/chat_prompt.h"

namespace headrace::pooled_decoder_stack_test {
namespace {

namespace fs = std::filesystem;
const std::string kPooled = "tests/data/pooled/";

StackOptions pooled_options(const std::string& name) {
  return {.model = kPooled + name, .device = {.threads = 2}, .load = {.dtype = DType::kF32}};
}

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json read_golden(const std::string& name) {
  return parse_json(text_of_file(kPooled + name)).value();
}

std::vector<TokenId> ids_in(const Json& row) {
  std::vector<TokenId> ids;
  for (const Json& id : row.find("ids")->as_array()) {
    ids.push_back(static_cast<TokenId>(id.as_int()));
  }
  return ids;
}

std::vector<double> numbers_in(const Json& row, std::string_view key) {
  std::vector<double> numbers;
  for (const Json& value : row.find(key)->as_array()) numbers.push_back(value.as_double());
  return numbers;
}

std::unique_ptr<EmbeddingStack> load_pooled(const StackOptions& options) {
  auto stack = EmbeddingStack::load(options);
  CHECK(stack.ok() && *stack != nullptr);
  return std::move(stack).value();
}

std::vector<float> pooled_vectors(EmbeddingStack& stack, std::vector<std::vector<TokenId>> texts) {
  std::promise<EmbeddingResult> done;
  const auto request =
      stack.engine().submit(single_texts(std::move(texts)),
                            [&](EmbeddingResult result) { done.set_value(std::move(result)); });
  CHECK(request.ok());
  EmbeddingResult result = done.get_future().get();
  CHECK(result.status.ok());
  return std::move(result.vectors);
}

// `golden` [texts][numbers], and each text alone has the bits that it has among the others.
void expect_vectors(EmbeddingStack& stack, const std::vector<std::vector<TokenId>>& texts,
                    const std::vector<std::vector<double>>& golden, double tolerance) {
  const auto width = static_cast<size_t>(stack.engine().runner().dimensions());
  const std::vector<float> together = pooled_vectors(stack, texts);
  ASSERT_EQ(together.size(), width * texts.size());
  for (size_t t = 0; t < texts.size(); ++t) {
    ASSERT_EQ(golden[t].size(), width);
    const std::span<const float> vector = std::span(together).subspan(t * width, width);
    for (size_t i = 0; i < width; ++i) {
      EXPECT_NEAR(vector[i], golden[t][i], tolerance) << t << " " << i;
    }
    const std::vector<float> alone = pooled_vectors(stack, {texts[t]});
    EXPECT_TRUE(std::ranges::equal(alone, vector)) << t;
  }
}

void expect_golden_vectors(const StackOptions& options, const std::string& name, double tolerance) {
  const auto stack = load_pooled(options);
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::vector<double>> golden;
  const Json rows = read_golden(name + "/vectors.json");
  for (const Json& row : rows.as_array()) {
    texts.push_back(ids_in(row));
    golden.push_back(numbers_in(row, "vector"));
    EXPECT_EQ(*stack->tokenizer()->encode(row.find("text")->as_string()), texts.back());
  }
  expect_vectors(*stack, texts, golden, tolerance);
}

class PooledEmbedder : public testing::TestWithParam<const char*> {};

// Which rows, and their length, are what each folder's files say.
TEST_P(PooledEmbedder, VectorsAreThoseOfTransformers) {
  expect_golden_vectors(pooled_options(GetParam()), GetParam(), 2e-6);
}

// A layer takes 7 rows at a time: of several texts, and of one that is longer.
TEST_P(PooledEmbedder, RowsOfALayerMayBeCutAnywhere) {
  StackOptions options = pooled_options(GetParam());
  options.batch.max_num_batched_tokens = 7;
  expect_golden_vectors(options, GetParam(), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(All, PooledEmbedder,
                         testing::Values("qwen3_embedding", "llama_embedding", "qwen2_base"),
                         [](const auto& info) { return info.param; });

// What a layer computes at a time changes no bit.
TEST(PooledDecoder, RowsOfALayerChangeNoBit) {
  const std::vector<TokenId> text(100, 42);
  StackOptions options = pooled_options("qwen3_embedding");
  const std::vector<float> whole = pooled_vectors(*load_pooled(options), {text});
  options.batch.max_num_batched_tokens = 7;
  EXPECT_EQ(pooled_vectors(*load_pooled(options), {text}), whole);
}

TEST(PooledDecoder, PoolingIsWhatTheFlagSays) {
  StackOptions options = pooled_options("qwen3_embedding");
  const std::vector<TokenId> text = {1, 2, 3};
  const auto first_of = [&](std::vector<TokenId> ids) {
    return pooled_vectors(*load_pooled(options), {std::move(ids)});
  };
  const std::vector<float> last = first_of(text);
  options.pooling.pooling = PoolingChoice::kFirst;
  const std::vector<float> cls = first_of(text);
  EXPECT_NE(cls, last);
  EXPECT_EQ(cls, first_of({1}));  // it sees no other token
  options.pooling = {.pooling = PoolingChoice::kMean, .normalise = false};
  const std::vector<float> mean = first_of(text);
  options.pooling.pooling = PoolingChoice::kLast;
  std::vector<std::vector<float>> rows;
  for (size_t length = 1; length <= text.size(); ++length) {
    rows.push_back(first_of({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  for (size_t i = 0; i < mean.size(); ++i) {
    EXPECT_NEAR(mean[i], (rows[0][i] + rows[1][i] + rows[2][i]) / 3, 1e-6);
  }
}

// ---- classifiers

// Rows of the golden file: pairs one behind the other, or in the template.
void expect_golden_logits(const StackOptions& options, const std::string& name, bool in_template,
                          const std::function<std::vector<double>(std::vector<double>)>& expected) {
  const auto stack = load_pooled(options);
  ASSERT_TRUE(stack->joins_pairs());
  const auto prompts =
      in_template ? ChatPromptEncoder::create(*stack->tokenizer(), *stack->pair_template()).value()
                  : nullptr;
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::vector<double>> golden;
  const Json rows = read_golden(name + "/logits.json");
  for (const Json& row : rows.as_array()) {
    if (in_template != (row.find("query") != nullptr)) continue;
    texts.push_back(ids_in(row));
    golden.push_back(expected(numbers_in(row, "logits")));
    if (!in_template) continue;
    Json messages = Json::array();
    for (const char* role : {"query", "document"}) {
      messages.push(Json::object().set("role", role).set("content", row.find(role)->as_string()));
    }
    EXPECT_EQ(*prompts->encode(messages, Json(), {}), texts.back());
  }
  ASSERT_EQ(texts.size(), 4u);
  expect_vectors(*stack, texts, golden, 5e-6);
}

TEST(PooledDecoder, LogitsOfClassesAreThoseOfTransformers) {
  const auto same = [](std::vector<double> logits) { return logits; };
  expect_golden_logits(pooled_options("qwen3_reranker"), "qwen3_reranker", false, same);
  expect_golden_logits(pooled_options("qwen2_classifier"), "qwen2_classifier", false, same);
  StackOptions options = pooled_options("qwen3_reranker");
  options.text.chat_template = kPooled + "template.jinja";
  expect_golden_logits(options, "qwen3_reranker", true, same);
}

// Of "no" and "yes": the sigmoid of their difference is the softmax's share of "yes".
TEST(PooledDecoder, TokensOfTheOutputMatrixAreAHead) {
  StackOptions options = pooled_options("qwen3_generating");
  options.pooling.classifier_tokens = {"no", "yes"};
  expect_golden_logits(options, "qwen3_generating", false,
                       [](std::vector<double> logits) { return logits; });
  options.pooling.two_way = true;
  const auto difference = [](std::vector<double> logits) {
    return std::vector<double>{logits[1] - logits[0]};
  };
  expect_golden_logits(options, "qwen3_generating", false, difference);
  EXPECT_EQ(load_pooled(options)->engine().runner().head().score, ScoreActivation::kSigmoid);
}

// Qwen3-Reranker as llama.cpp converts it: a head of two rows, and its own template.
TEST(PooledDecoder, AGgufFileOfRanksIsTheSameModel) {
  expect_golden_logits(
      pooled_options("qwen3_rank.gguf"), "qwen3_generating", true,
      [](std::vector<double> logits) { return std::vector<double>{logits[1] - logits[0]}; });
}

// ---- what is chosen and refused

std::string pooled_error(const StackOptions& options) {
  const auto stack = EmbeddingStack::load(options);
  if (!stack.ok()) return stack.status().message();
  return *stack == nullptr ? "it generates" : "it was loaded";
}

TEST(PooledDecoder, AModelThatGeneratesIsAskedForVectorsByAFlag) {
  StackOptions options = pooled_options("qwen3_generating");
  EXPECT_EQ(pooled_error(options), "it generates");
  for (const PoolingOptions& pooling : {PoolingOptions{.runner = RunnerChoice::kPooling},
                                        PoolingOptions{.convert = ConvertChoice::kEmbed},
                                        PoolingOptions{.pooling = PoolingChoice::kMean}}) {
    options.pooling = pooling;
    const auto stack = load_pooled(options);
    EXPECT_FALSE(stack->engine().runner().head());
    EXPECT_TRUE(stack->engine().runner().normalises());
    EXPECT_EQ(stack->engine().runner().dimensions(), 16);
  }
  options = pooled_options("qwen3_embedding");
  options.pooling.runner = RunnerChoice::kGenerate;
  EXPECT_EQ(pooled_error(options), "it generates");
  const auto generates = ModelStack::load(options);
  EXPECT_TRUE(generates.ok()) << generates.status().message();
}

// As an embedder is saved whose configuration is of the class that generates.
TEST(PooledDecoder, AnOutputMatrixThatNobodySavedIsNotMissed) {
  const fs::path folder = fs::path(testing::TempDir()) / "untied_embedding";
  fs::remove_all(folder);
  fs::copy(kPooled + "qwen3_embedding", folder, fs::copy_options::recursive);
  std::string config = text_of_file(folder / "config.json");
  const std::string tied = "\"tie_word_embeddings\":true";
  ASSERT_NE(config.find(tied), std::string::npos);
  config.replace(config.find(tied), tied.size(), "\"tie_word_embeddings\":false");
  std::ofstream(folder / "config.json") << config;
  StackOptions options = pooled_options("");
  options.model = folder.string();
  expect_golden_vectors(options, "qwen3_embedding", 2e-6);
  options.pooling.classifier_tokens = {"a"};
  EXPECT_NE(pooled_error(options).find("lm_head.weight"), std::string::npos)
      << pooled_error(options);
  fs::remove_all(folder);
}

TEST(PooledDecoder, RefusesWhatItHasNotByItsFlag) {
  const auto refused = [](StackOptions options, std::string_view word) {
    options.model = kPooled + "qwen3_generating";
    const std::string error = pooled_error(options);
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  const auto pooling = [](PoolingOptions options) {
    options.runner = RunnerChoice::kPooling;
    return options;
  };
  refused({.device = {.choice = DeviceChoice::kGpu}, .pooling = pooling({})}, "--device cpu");
  refused({.device = {.tensor_parallel_size = 2}, .pooling = pooling({})},
          "--tensor-parallel-size");
  refused({.pooling = pooling({.pooling = PoolingChoice::kNone})}, "--pooling none");
  refused({.pooling = pooling({.pooling = PoolingChoice::kRank})}, "classifier_from_token");
  refused({.pooling = pooling({.convert = ConvertChoice::kClassify})}, "no head");
  refused({.pooling = pooling({.classifier_tokens = {"maybe"}})}, "\"maybe\" is no token");
  refused({.pooling = pooling({.classifier_tokens = {"no"}, .two_way = true})}, "two tokens");
  refused({.pooling = pooling({.convert = ConvertChoice::kEmbed, .classifier_tokens = {"no"}})},
          "--convert embed");
  refused({.pooling = pooling({}), .memory = {.max_model_len = 257}}, "context of 256");
}

// What would generate with it says what it is for.
TEST(PooledDecoder, ModelsWithoutAnOutputMatrixGenerateNothing) {
  for (const char* name : {"qwen2_base", "qwen3_reranker", "qwen3_rank.gguf"}) {
    const auto stack = ModelStack::load(pooled_options(name));
    ASSERT_FALSE(stack.ok()) << name;
    EXPECT_NE(stack.status().message().find("generates no text"), std::string::npos)
        << stack.status().message();
  }
}

// llama.cpp's line for a reranker.
TEST(PooledDecoder, EmbeddingWithRanksAsksForScores) {
  const auto config =
      choose_pooling({.convert = ConvertChoice::kEmbed, .pooling = PoolingChoice::kRank},
                     PoolingConfig{.head = {.labels = {"relevant"}}}, "x.gguf");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE((*config)->head);
}

TEST(PooledDecoder, AnEncoderPoolsAsItsFolderSays) {
  EncoderConfig embedder, classifier;
  embedder.normalise = true;
  classifier.head.labels = {"relevant"};
  const auto error = [](const PoolingOptions& options, const EncoderConfig& encoder) {
    return check_encoder_pooling(options, encoder, "folder").message();
  };
  EXPECT_EQ(error({}, embedder), "");
  EXPECT_EQ(error({.convert = ConvertChoice::kEmbed, .pooling = PoolingChoice::kMean}, embedder),
            "");
  EXPECT_EQ(error({.convert = ConvertChoice::kClassify}, classifier), "");
  EXPECT_EQ(error({.pooling = PoolingChoice::kRank}, classifier), "");
  for (const PoolingOptions& options :
       {PoolingOptions{.pooling = PoolingChoice::kLast},
        PoolingOptions{.pooling = PoolingChoice::kNone}, PoolingOptions{.normalise = false}}) {
    EXPECT_NE(error(options, embedder).find("as its folder says"), std::string::npos);
  }
  EXPECT_NE(error({.pooling = PoolingChoice::kRank}, embedder).find("no classifier's head"),
            std::string::npos);
  EXPECT_NE(error({.convert = ConvertChoice::kEmbed}, classifier).find("is a classifier"),
            std::string::npos);
  EXPECT_NE(error({.classifier_tokens = {"yes"}}, embedder).find("--hf-overrides"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::pooled_decoder_stack_test
