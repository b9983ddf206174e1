// Tiny random encoders, folders and GGUF files, against transformers
// (tests/golden/make_encoder_cases.py and make_encoder_gguf_cases.py wrote both), and what is
// refused.
#include "stack/embedding_stack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

#include "base/json.h"
#include "engine/encoder_runner.h"
#include "stack/model_device.h"
#include "stack/model_source.h"
#include "text/text_pair.h"

namespace headrace::encoder_stack_test {
namespace {

namespace fs = std::filesystem;
const std::string kEncoders = "tests/data/encoders/";

Json read_encoder_json(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str()).value();
}

struct GoldenText {
  std::vector<TokenId> ids;
  std::vector<float> vector;  // pooled, of length 1
};

std::vector<GoldenText> golden_texts(const std::string& name, std::string_view pooling) {
  std::vector<GoldenText> texts;
  const Json rows = read_encoder_json(kEncoders + name + "/vectors.json");
  for (const Json& row : rows.as_array()) {
    GoldenText& text = texts.emplace_back();
    for (const Json& id : row.find("ids")->as_array()) {
      text.ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    double squares = 0;
    for (const Json& value : row.find(pooling)->as_array()) {
      text.vector.push_back(static_cast<float>(value.as_double()));
      squares += value.as_double() * value.as_double();
    }
    for (float& value : text.vector) value /= static_cast<float>(std::sqrt(squares));
  }
  return texts;
}

Json ids_json(const std::vector<TokenId>& ids) {
  Json json = Json::array();
  for (const TokenId id : ids) json.push(id);
  return json;
}

std::vector<float> vectors_of(EmbeddingEngine& engine, std::vector<EmbeddingText> texts) {
  std::promise<EmbeddingResult> done;
  const auto request = engine.submit(
      std::move(texts), [&](EmbeddingResult result) { done.set_value(std::move(result)); });
  CHECK(request.ok());
  EmbeddingResult result = done.get_future().get();
  CHECK(result.status.ok());
  return std::move(result.vectors);
}

class TinyEncoder : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(TinyEncoder, VectorsAreThoseOfTransformers) {
  const auto [name, pooling] = GetParam();
  const auto stack = EmbeddingStack::load(
      {.model = kEncoders + name, .device = {.threads = 2}, .load = {.dtype = DType::kF32}});
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  ASSERT_NE(*stack, nullptr);
  EXPECT_EQ((*stack)->info().max_model_len, 44);
  std::vector<std::vector<TokenId>> texts;
  const std::vector<GoldenText> golden = golden_texts(name, pooling);
  for (const GoldenText& text : golden) texts.push_back(text.ids);
  const std::vector<float> together = vectors_of((*stack)->engine(), single_texts(texts));
  ASSERT_EQ(together.size(), 16 * golden.size());
  for (size_t t = 0; t < golden.size(); ++t) {
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(together[t * 16 + i], golden[t].vector[i], 2e-6) << t << " " << i;
    }
    const std::vector<float> alone = vectors_of((*stack)->engine(), single_texts({texts[t]}));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + 16 * t)) << t;
  }
}

// Eight bits of mantissa in products, as narrow vectors as these show them.
TEST_P(TinyEncoder, VectorsByBf16AreNear) {
  const auto [name, pooling] = GetParam();
  const auto stack = EmbeddingStack::load(
      {.model = kEncoders + name, .device = {.threads = 2}, .load = {.dtype = DType::kBF16}});
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  std::vector<std::vector<TokenId>> texts;
  const std::vector<GoldenText> golden = golden_texts(name, pooling);
  for (const GoldenText& text : golden) texts.push_back(text.ids);
  const std::vector<float> vectors = vectors_of((*stack)->engine(), single_texts(texts));
  double furthest = 1;
  for (size_t t = 0; t < golden.size(); ++t) {
    double product = 0, squares = 0;
    for (size_t i = 0; i < 16; ++i) {
      product += double{vectors[t * 16 + i]} * golden[t].vector[i];
      squares += double{vectors[t * 16 + i]} * vectors[t * 16 + i];
    }
    furthest = std::min(furthest, product / std::sqrt(squares));
  }
  EXPECT_GE(furthest, 0.999);
  EXPECT_LT(furthest, 1 - 1e-9) << "nothing was rounded";
}

// Where nothing is said: BF16 where it is fast and a text's bits are its own, never for logits.
TEST(EncoderStack, ChoosesItsArithmetic) {
  const auto first_vector = [](const std::string& model, std::optional<DType> dtype) {
    const auto stack = EmbeddingStack::load(
        {.model = kEncoders + model, .device = {.threads = 1}, .load = {.dtype = dtype}});
    CHECK(stack.ok());
    return vectors_of((*stack)->engine(), single_texts({{2, 5, 9, 11, 3}}));
  };
  const CpuFeatures cpu = create_cpu_device(1)->traits().cpu;
  const bool fast = cpu.fast_bf16_dot && !cpu.amx_bf16;
  EXPECT_EQ(first_vector("bert", {}), first_vector("bert", fast ? DType::kBF16 : DType::kF32));
  EXPECT_EQ(first_vector("bert_reranker", {}), first_vector("bert_reranker", DType::kF32));
}

class TinyClassifier : public testing::TestWithParam<const char*> {};

// Pairs are joined and cut as transformers' tokenizers do it, and logits are its models'.
TEST_P(TinyClassifier, PairsAndLogitsAreThoseOfTransformers) {
  const std::string folder = kEncoders + GetParam();
  const auto loaded = EmbeddingStack::load({.model = folder, .device = {.threads = 2}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EmbeddingStack& stack = **loaded;
  const auto classes = static_cast<size_t>(stack.engine().runner().dimensions());
  const Tokenizer& tokenizer = *stack.tokenizer();
  ASSERT_TRUE(tokenizer.vocab().pair);
  const PairFrame& frame = *tokenizer.vocab().pair;
  std::vector<EmbeddingText> texts;
  const Json rows = read_encoder_json(folder + "/logits.json");
  for (const Json& row : rows.as_array()) {
    EmbeddingText& text = texts.emplace_back();
    if (const Json* single = row.find("text")) {
      text.ids = *tokenizer.encode(single->as_string());
    } else {
      const auto first = *tokenizer.encode(row.find("first")->as_string(), {.add_special = false});
      const auto second =
          *tokenizer.encode(row.find("second")->as_string(), {.add_special = false});
      const auto most = static_cast<size_t>(row.find("most")->as_int());
      const PairLengths kept = longest_first({first.size(), second.size()}, most - frame.size());
      text.ids = join_pair(frame, TokenSpan(first).first(kept.first),
                           TokenSpan(second).first(kept.second));
      text.second_count = static_cast<int32_t>(row.find("second_count")->as_int());
      if (frame.second_type) {
        EXPECT_EQ(text.second_count, static_cast<int32_t>(kept.second + frame.back.size()));
      }
    }
    ASSERT_EQ(write_json(ids_json(text.ids)), write_json(*row.find("ids")));
  }
  const std::vector<float> logits = vectors_of(stack.engine(), texts);
  ASSERT_EQ(logits.size(), classes * texts.size());
  for (size_t t = 0; t < texts.size(); ++t) {
    const Json::Array& golden = rows.as_array()[t].find("logits")->as_array();
    for (size_t i = 0; i < classes; ++i) {
      EXPECT_NEAR(logits[t * classes + i], golden[i].as_double(), 5e-6) << t << " " << i;
    }
    const std::vector<float> alone = vectors_of(stack.engine(), {texts[t]});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), logits.begin() + classes * t)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyClassifier,
                         testing::Values("bert_reranker", "bert_classifier", "xlmr_reranker",
                                         "roberta_classifier", "mpnet_reranker",
                                         "modernbert_reranker", "modernbert_classifier"),
                         [](const auto& info) { return info.param; });

TEST(EncoderStack, HeadsAreWhatTheFilesSay) {
  const auto head_of = [](const std::string& name) {
    return open_model_source(kEncoders + name).value()->encoder().value().value().head;
  };
  const ClassifierHead identity = head_of("bert_reranker");
  EXPECT_TRUE(identity.scores());
  EXPECT_EQ(identity.score, ScoreActivation::kIdentity);
  EXPECT_EQ(identity.classes, ScoreActivation::kSigmoid);
  EXPECT_EQ(head_of("xlmr_reranker").score, ScoreActivation::kSigmoid);
  const ClassifierHead three = head_of("bert_classifier");
  EXPECT_EQ(three.labels, (std::vector<std::string>{"bad", "so so", "good"}));
  EXPECT_EQ(three.classes, ScoreActivation::kSoftmax);
  const ClassifierHead two = head_of("roberta_classifier");
  EXPECT_EQ(two.labels, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(two.classes, ScoreActivation::kSigmoid);
  EXPECT_FALSE(head_of("bert"));
}

INSTANTIATE_TEST_SUITE_P(All, TinyEncoder,
                         testing::Values(std::pair("bert", "first"), std::pair("roberta", "mean"),
                                         std::pair("mpnet", "mean"),
                                         std::pair("modernbert", "first"),
                                         std::pair("modernbert_biased", "mean")),
                         [](const auto& info) { return info.param.first; });

// Files with the keys and names of llama.cpp's converter (tests/golden/make_encoder_gguf_cases.py).
struct GgufCase {
  const char *file, *vectors, *pooling;
};
class TinyGgufEncoder : public testing::TestWithParam<GgufCase> {};

TEST_P(TinyGgufEncoder, VectorsAreThoseOfTransformers) {
  const auto [file, vectors, pooling] = GetParam();
  const auto stack = EmbeddingStack::load({.model = kEncoders + file + ".gguf",
                                           .device = {.threads = 2},
                                           .load = {.dtype = DType::kF32}});
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  ASSERT_NE(*stack, nullptr);
  EXPECT_EQ((*stack)->info().max_model_len, 44);
  std::vector<std::vector<TokenId>> texts;
  const std::vector<GoldenText> golden = golden_texts(vectors, pooling);
  for (const GoldenText& text : golden) texts.push_back(text.ids);
  const std::vector<float> together = vectors_of((*stack)->engine(), single_texts(texts));
  ASSERT_EQ(together.size(), 16 * golden.size());
  for (size_t t = 0; t < golden.size(); ++t) {
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(together[t * 16 + i], golden[t].vector[i], 2e-6) << t << " " << i;
    }
    const std::vector<float> alone = vectors_of((*stack)->engine(), single_texts({texts[t]}));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + 16 * t)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyGgufEncoder,
                         testing::Values(GgufCase{"bert", "bert", "first"},
                                         GgufCase{"modernbert", "modernbert", "first"},
                                         GgufCase{"nomic_bert", "nomic_bert", "mean"},
                                         GgufCase{"jina_bert", "jina_bert", "mean"}),
                         [](const auto& info) { return info.param.file; });

TEST(EncoderStack, TheWordPieceOfAGgufFileIsThatOfItsMakers) {
  const auto stack =
      EmbeddingStack::load({.model = kEncoders + "bert.gguf", .device = {.threads = 1}});
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  const Tokenizer& tokenizer = *(*stack)->tokenizer();
  const Json rows = read_encoder_json(kEncoders + "bert_texts.json");
  EXPECT_EQ(rows.as_array().size(), 10u);
  for (const Json& row : rows.as_array()) {
    const std::string& text = row.find("text")->as_string();
    EXPECT_EQ(ids_json(*tokenizer.encode(text)), *row.find("ids")) << text;
  }
  EXPECT_EQ(tokenizer.decode(*tokenizer.encode("the cats unknown"), true), "the cats unknown");
  ASSERT_TRUE(tokenizer.vocab().pair);
  EXPECT_EQ(tokenizer.vocab().pair->middle, std::vector<TokenId>{3});
  EXPECT_TRUE(tokenizer.vocab().pair->second_type);
}

TEST(EncoderStack, AGgufEncoderGeneratesNoText) {
  const auto source = open_model_source(kEncoders + "bert.gguf").value();
  EXPECT_NE(source->config().status().message().find(
                "general.architecture: \"bert\" is an encoder, which generates no text"),
            std::string::npos)
      << source->config().status().message();
}

// Its file does not say that classes are made of the mean of the rows; those of bert are of the
// first one.
TEST(EncoderStack, AGgufModernBertMakesClassesOfTheMean) {
  const auto stack = EmbeddingStack::load({.model = kEncoders + "modernbert_classes.gguf",
                                           .device = {.threads = 2},
                                           .load = {.dtype = DType::kF32}});
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  const Json rows = read_encoder_json(kEncoders + "modernbert_classes/logits.json");
  ASSERT_EQ(rows.as_array().size(), 5u);
  for (const Json& row : rows.as_array()) {
    EmbeddingText text;
    for (const Json& id : row.find("ids")->as_array()) {
      text.ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    const std::vector<float> logits = vectors_of((*stack)->engine(), {text});
    const Json::Array& golden = row.find("logits")->as_array();
    ASSERT_EQ(logits.size(), golden.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(logits[i], golden[i].as_double(), 5e-6) << write_json(*row.find("ids"));
    }
  }
}

// The converter leaves the pooler out of this class: scores would be others than its makers'.
TEST(EncoderStack, AGgufClassifierWithoutItsDenseLayerIsRefused) {
  const auto stack =
      EmbeddingStack::load({.model = kEncoders + "bert_reranker.gguf", .device = {.threads = 1}});
  ASSERT_FALSE(stack.ok());
  EXPECT_NE(stack.status().message().find("tensor cls.weight: missing: whoever converted"),
            std::string::npos)
      << stack.status().message();
}

TEST(EncoderStack, APassAsksTwiceALayerWhetherToGoOn) {
  const auto source = open_model_source(kEncoders + "bert").value();
  const EncoderConfig config = source->encoder().value().value();
  const auto weights = source->weights(encoder_hf_names(config), /*tied=*/false).value();
  DeviceOptions options{.threads = 1};
  options.choice = DeviceChoice::kCpu;
  const auto device = create_device(options).value();
  const auto encoder = Encoder::load(config, *weights, *device, {}).value();
  const auto runner = create_encoder_runner(*device, *encoder, 64, nullptr).value();
  const std::vector<TokenId> tokens = {1, 2, 3};
  const std::vector<RowSequence> sequences = {{0, 3}};
  std::vector<float> vectors(static_cast<size_t>(runner->dimensions()));
  int32_t asked = 0, most = 1 << 20;
  const auto go_on = [&] { return ++asked <= most; };
  const EncoderBatch batch{.tokens = tokens, .sequences = sequences};
  EXPECT_TRUE(runner->run(batch, vectors, go_on));
  EXPECT_EQ(asked, 2 * config.layers);
  asked = 0;
  most = 1;
  EXPECT_FALSE(runner->run(batch, vectors, go_on));
  EXPECT_EQ(asked, 2);
}

// A copy of an encoder's folder whose files may be changed.
fs::path copied_encoder(const std::string& name) {
  const fs::path folder = fs::path(testing::TempDir()) / ("encoder_" + name);
  fs::remove_all(folder);
  fs::copy(kEncoders + name, folder, fs::copy_options::recursive);
  return folder;
}

std::string load_error(const StackOptions& options) {
  const auto stack = EmbeddingStack::load(options);
  return stack.ok() ? "it was loaded" : stack.status().message();
}

TEST(EncoderStack, RefusesWhatItHasNotByItsFlag) {
  const std::string model = kEncoders + "bert";
  const auto refused = [&](StackOptions options, std::string_view word) {
    options.model = model;
    EXPECT_NE(load_error(options).find(word), std::string::npos) << load_error(options);
  };
  refused({.device = {.choice = DeviceChoice::kGpu}}, "--device cpu");
  refused({.load = {.format = LoadFormat::kDummy}}, "--load-format dummy");
  refused({.load = {.dtype = DType::kF16}}, "use float32 or bfloat16");
  refused({.load = {.dtype = DType::kBF16, .quantise_to = DType::kQ8_0}}, "leave one out");
  refused({.memory = {.max_model_len = 45}}, "the 44 tokens");
}

TEST(EncoderStack, RefusesFilesThatAskForMore) {
  const auto refused = [](const char* file, const std::string& text, std::string_view word) {
    const fs::path folder = copied_encoder("bert");
    std::ofstream(folder / file) << text;
    const std::string error = load_error({.model = folder.string()});
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  refused("modules.json", R"([{"type":"sentence_transformers.models.Dense","path":"2_Dense"}])",
          "Dense is not supported");
  refused("modules.json", R"([{"type":"a.Pooling","path":"../x"}])", "no name of a folder");
  refused("1_Pooling/config.json", R"({"pooling_mode_weightedmean_tokens":true})",
          "pooling_mode_weightedmean_tokens");
  refused("1_Pooling/config.json",
          R"({"pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":true})", "more than one");
  refused("1_Pooling/config.json", "{}", "1_Pooling/config.json: pooling_mode: names no kind");
  refused("1_Pooling/config.json", "[]", "1_Pooling/config.json: (all): is no object");
  refused("sentence_bert_config.json", "[]", "is no object");
  refused("sentence_bert_config.json", "null", "is null");
  refused("sentence_bert_config.json", R"({"do_lower_case":true})", "do_lower_case");
  refused("sentence_bert_config.json", R"({"max_seq_length":0})", "max_seq_length");
}

TEST(EncoderStack, RefusesOtherModulesThanItHas) {
  const auto refused = [](std::initializer_list<std::pair<const char*, const char*>> modules,
                          std::string_view word) {
    const fs::path folder = copied_encoder("bert");
    Json list = Json::array();
    for (const auto& [type, path] : modules) {
      list.push(Json::object().set("type", std::string("a.") + type).set("path", path));
    }
    std::ofstream(folder / "modules.json") << write_json(list);
    const std::string error = load_error({.model = folder.string()});
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  const std::pair transformer("Transformer", ""), pooling("Pooling", "1_Pooling"),
      normalise("Normalize", "2_Normalize");
  refused({transformer, pooling, pooling}, "Pooling as module 2 is not supported");
  refused({transformer, normalise, pooling}, "Normalize as module 1 is not supported");
  refused({transformer, pooling, normalise, normalise}, "Normalize as module 3 is not supported");
  refused({pooling}, "Pooling as module 0 is not supported");
  refused({transformer}, "a Pooling are needed");
  refused({{"Transformer", "0_Transformer"}, pooling}, "a folder of its own");
  refused({transformer, {"Pooling", "3_Pooling"}}, "3_Pooling/config.json: there is no such file");
  refused({transformer, {"Pooling", ""}}, "names no folder");
  const fs::path folder = copied_encoder("bert");
  std::ofstream(folder / "modules.json") << R"([{"type":"a.Transformer","path":5}])";
  EXPECT_NE(load_error({.model = folder.string()}).find("modules.json: path: is no text"),
            std::string::npos);
}

// The names under which sentence-transformers wrote them.
TEST(EncoderStack, ReadsTheSettingsOfEveryFamily) {
  for (const char* family :
       {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const fs::path folder = copied_encoder("bert");
    fs::remove(folder / "sentence_bert_config.json");
    const std::string file = std::string("sentence_") + family + "_config.json";
    std::ofstream(folder / file) << R"({"max_seq_length":21})";
    const auto stack = EmbeddingStack::load({.model = folder.string(), .device = {.threads = 1}});
    ASSERT_TRUE(stack.ok()) << stack.status().message();
    EXPECT_EQ((*stack)->engine().runner().length_max(), 21) << family;
    std::ofstream(folder / file) << R"({"do_lower_case":true})";
    EXPECT_NE(load_error({.model = folder.string()}).find(file + ": do_lower_case"),
              std::string::npos);
  }
}

TEST(EncoderStack, RefusesAConfigurationByItsKey) {
  const auto refused = [](const char* key, const Json& value, std::string_view word) {
    const fs::path folder = copied_encoder("mpnet");
    Json config = read_encoder_json(folder / "config.json");
    config.set(key, value);
    std::ofstream(folder / "config.json") << write_json(config);
    const std::string error = load_error({.model = folder.string()});
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  refused("hidden_size", Json(17), "num_attention_heads");
  refused("hidden_size", Json(-1), "hidden_size");
  refused("hidden_size", Json(18), "token_embd");  // the file's tensors have another shape
  refused("num_hidden_layers", Json(1), "encoder.layer.1");  // a tensor that would be ignored
  refused("num_hidden_layers", Json(3), "encoder.layer.2");
  refused("hidden_act", Json("relu"), "hidden_act");
  refused("layer_norm_eps", Json("x"), "layer_norm_eps");
  refused("pad_token_id", Json(40), "pad_token_id");
  refused("max_position_embeddings", Json(2), "max_position_embeddings");
  refused("relative_attention_num_buckets", Json(), "relative_attention_num_buckets");
}

TEST(EncoderStack, RefusesAModernBertByItsKey) {
  const auto error_with = [](const char* name, const char* key, const Json& value) {
    const fs::path folder = copied_encoder(name);
    Json config = read_encoder_json(folder / "config.json");
    config.set(key, value);
    std::ofstream(folder / "config.json") << write_json(config);
    return load_error({.model = folder.string()});
  };
  const std::pair<const char*, Json> wrong[] = {
      {"hidden_activation", Json("silu")},
      {"norm_eps", Json()},
      {"rope_scaling", Json::object().set("rope_type", "yarn")},
      {"rope_parameters",
       Json::object().set("full_attention", Json::object().set("rope_type", "yarn"))},
      {"rope_parameters",
       Json::object().set("full_attention", Json::object().set("rope_theta", 0))},
      {"layer_types", Json(Json::Array{Json("full_attention")})},
      {"layer_types", Json(Json::Array(4, Json("chunked_attention")))},
      {"local_attention", Json(1)},
      {"norm_bias", Json(1)},
      {"num_attention_heads", Json(16)},
  };
  for (const auto& [key, value] : wrong) {
    const std::string error = error_with("modernbert", key, value);
    EXPECT_NE(error.find(key), std::string::npos) << key << ": " << error;
  }
  // Tensors that are missing, and those that would be ignored.
  EXPECT_NE(error_with("modernbert", "norm_bias", true).find("embeddings.norm.bias"),
            std::string::npos);
  const std::string ignored = error_with("modernbert_biased", "mlp_bias", false);
  EXPECT_NE(ignored.find(".bias: modernbert encoders have none such"), std::string::npos)
      << ignored;
  EXPECT_NE(error_with("modernbert_reranker", "classifier_activation", "tanh")
                .find("classifier_activation"),
            std::string::npos);
  EXPECT_NE(
      error_with("modernbert_reranker", "classifier_pooling", "max").find("classifier_pooling"),
      std::string::npos);
  EXPECT_NE(error_with("modernbert_reranker", "global_rope_theta", "x").find("global_rope_theta"),
            std::string::npos);
}

TEST(EncoderStack, RefusesAHeadByItsKey) {
  const auto refused = [](const char* name, const char* key, const Json& value,
                          std::string_view word) {
    const fs::path folder = copied_encoder(name);
    Json config = read_encoder_json(folder / "config.json");
    config.set(key, value);
    std::ofstream(folder / "config.json") << write_json(config);
    const std::string error = load_error({.model = folder.string()});
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  refused("bert_classifier", "problem_type", Json("ranking"), "problem_type");
  refused("bert_classifier", "id2label", Json::object(), "id2label");
  refused("bert_classifier", "id2label", Json::object().set("1", "a"), "no label \"0\"");
  refused("bert_classifier", "id2label", Json::object().set("0", "a"), "cls.output.weight");
  refused("xlmr_reranker", "id2label", Json(), "cls.output.weight");  // two, then
  refused("xlmr_reranker", "num_labels", Json(0), "it was loaded");   // id2label says it
  refused("xlmr_reranker", "sbert_ce_default_activation_function", Json("torch.nn.Tanh"),
          "sbert_ce_default_activation_function");
  refused("bert_reranker", "sentence_transformers",
          Json::object().set("activation_fn", "mine.Sigmoids"), "activation_fn");
  const fs::path folder = copied_encoder("bert_reranker");
  std::ofstream(folder / "config_sentence_transformers.json") << R"({"activation_fn":"a.Tanh"})";
  EXPECT_NE(load_error({.model = folder.string()}).find("config_sentence_transformers.json"),
            std::string::npos);
}

// What would generate with it says what it is for.
TEST(EncoderStack, AnEncoderIsNoModelStacks) {
  const auto stack = ModelStack::load({.model = kEncoders + "bert", .device = {.threads = 1}});
  ASSERT_FALSE(stack.ok());
  EXPECT_NE(stack.status().message().find("\"BertModel\" is an encoder"), std::string::npos)
      << stack.status().message();
}

TEST(EncoderStack, LeavesOtherModelsToTheModelStack) {
  const fs::path folder = copied_encoder("bert");
  fs::remove(folder / "modules.json");  // with it a Llama gives vectors, too
  std::ofstream(folder / "config.json") << R"({"architectures":["LlamaForCausalLM"]})";
  const auto stack = EmbeddingStack::load({.model = folder.string()});
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  EXPECT_EQ(*stack, nullptr);
}

}  // namespace
}  // namespace headrace::encoder_stack_test
