#include "weights/gpt_families.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::gpt_families_test {
namespace {

// A file of `members`, and of `more` in their place.
Result<ModelConfig> read(const std::string& members, const std::string& more = "") {
  Json config = parse_json("{" + members + "}").value();
  const Json changed = parse_json("{" + more + "}").value();
  for (const auto& [key, value] : changed.as_object()) config.set(key, value);
  return model_config_from_json(config, Json(), "config.json");
}
// What is said of it; empty: it is read.
std::string error_of(const std::string& members, const std::string& more = "") {
  const auto config = read(members, more);
  return config.ok() ? "" : std::string(config.status().message());
}

const std::string kGpt2 = R"("architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 3,
  "n_head": 4, "n_positions": 512, "n_inner": null, "vocab_size": 100,
  "activation_function": "gelu_new")";
const std::string kOpt = R"("architectures": ["OPTForCausalLM"], "hidden_size": 64, "ffn_dim": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100)";
const std::string kFalcon = R"("architectures": ["FalconForCausalLM"], "hidden_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 100)";
const std::string kNeo = R"("architectures": ["GPTNeoForCausalLM"], "hidden_size": 64,
  "num_layers": 4, "num_heads": 4, "vocab_size": 100, "intermediate_size": null)";

TEST(GptFamilies, HaveNumbersUnderTheirOwnNames) {
  const auto gpt2 = read(kGpt2);
  ASSERT_TRUE(gpt2.ok()) << gpt2.status().message();
  EXPECT_EQ(gpt2->hidden, 64);
  EXPECT_EQ(gpt2->layers, 3);
  EXPECT_EQ(gpt2->heads, 4);
  EXPECT_EQ(gpt2->kv_heads, 4);
  EXPECT_EQ(gpt2->ffn, 256);  // four times the hidden size
  EXPECT_EQ(gpt2->context_length, 512);
  EXPECT_TRUE(gpt2->tied_embeddings && gpt2->qkv_bias && gpt2->ffn_bias && gpt2->fused.qkv);
  EXPECT_NE(error_of(kGpt2, R"("n_embd": -1)").find("n_embd"), std::string::npos);
  EXPECT_NE(error_of(kGpt2, R"("n_head": 5)").find("n_head: 5 heads do not divide"),
            std::string::npos)
      << error_of(kGpt2, R"("n_head": 5)");
  EXPECT_EQ(read(kOpt)->ffn, 96);
  EXPECT_EQ(read(kFalcon)->ffn, 256);
}

TEST(GptFamilies, BaseClassesAndClassifiersAreTheSameFamily) {
  std::string base = kGpt2, classifier = kGpt2;
  base.replace(base.find("GPT2LMHeadModel"), 15, "GPT2Model");
  classifier.replace(classifier.find("GPT2LMHeadModel"), 15, "GPT2ForSequenceClassification");
  ASSERT_TRUE(read(base).ok()) << error_of(base);
  EXPECT_FALSE(read(base)->head.matrix);
  ASSERT_TRUE(read(classifier).ok()) << error_of(classifier);
  EXPECT_EQ(read(classifier)->head.classes, 2);
  EXPECT_TRUE(read(kGpt2)->head.generates());
}

TEST(GptFamilies, RefuseByNameWhatIsNotComputed) {
  struct Case {
    std::string members;
    const char *more, *expected;
  };
  const Case kCases[] = {
      {kGpt2, R"("scale_attn_by_inverse_layer_idx": true)", "scale_attn_by_inverse_layer_idx"},
      {kGpt2, R"("scale_attn_weights": false)", "scale_attn_weights"},
      {kGpt2, R"("add_cross_attention": true)", "add_cross_attention"},
      {kGpt2, R"("add_cross_attention": 1)", "expected a boolean"},
      {kGpt2, R"("activation_function": "relu")", "activation_function: only \"gelu_new\""},
      {kOpt, R"("do_layer_norm_before": false)", "do_layer_norm_before"},
      {kOpt, R"("word_embed_proj_dim": 32)", "word_embed_proj_dim"},
      {kOpt, R"("activation_function": "gelu")", "activation_function: only \"relu\""},
      {kFalcon, R"("alibi": true)", "alibi: true is not supported, only false"},
      {kFalcon, R"("num_ln_in_parallel_attn": 3)", "num_ln_in_parallel_attn"},
      {kNeo, R"("attention_layers": ["global"])", "attention_layers"},
      {kNeo, R"("attention_types": [[["global", "other"], 2]])", "attention_types"},
      {kNeo, R"("attention_types": [[["global"], 1000000000000]])", "attention_types"},
      {kNeo, R"("attention_types": [[[], 1000000000000]])", "attention_types"},
  };
  for (const auto& [members, more, expected] : kCases) {
    EXPECT_NE(error_of(members, more).find(expected), std::string::npos)
        << more << ": " << error_of(members, more);
  }
}

TEST(GptFamilies, FalconHasOneKeyHeadAGroupsOrAll) {
  EXPECT_EQ(read(kFalcon)->kv_heads, 1);
  EXPECT_EQ(read(kFalcon, R"("multi_query": false)")->kv_heads, 8);
  const auto newer = read(kFalcon, R"("new_decoder_architecture": true, "num_kv_heads": 2)");
  ASSERT_TRUE(newer.ok()) << newer.status().message();
  EXPECT_EQ(newer->kv_heads, 2);
  EXPECT_TRUE(newer->mixers.parallel && newer->mixers.norms_apart);
  EXPECT_FALSE(read(kFalcon)->mixers.norms_apart);
  EXPECT_FALSE(read(kFalcon, R"("parallel_attn": false)")->mixers.parallel);
}

TEST(GptFamilies, GptNeosWindowsComeByLayer) {
  const std::vector<bool> kEachSecond = {false, true, false, true};
  EXPECT_EQ(read(kNeo)->sliding_layers, kEachSecond);
  EXPECT_EQ(read(kNeo, R"("attention_types": [[["global", "local"], 2]])")->sliding_layers,
            kEachSecond);
  EXPECT_EQ(
      read(kNeo, R"("attention_layers": ["local", "local", "global", "local"])")->sliding_layers,
      (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(read(kNeo)->window, 256);
}

}  // namespace
}  // namespace headrace::gpt_families_test
