#include "weights/pooling_config.h"

#include <gtest/gtest.h>

#include "weights/gguf_fixture.h"

namespace headrace::pooling_config_test {
namespace {

Result<std::optional<PoolingConfig>> pooling_in(const GgufBuilder& builder) {
  const std::string data = builder.build();
  const auto file =
      GgufFile::from_memory(std::as_bytes(std::span(data.data(), data.size())), "t.gguf");
  CHECK(file.ok());
  return pooling_config_from_gguf(**file);
}

TEST(PoolingConfig, AGgufFileNamesTheRows) {
  EXPECT_FALSE(pooling_in(tiny_llama())->has_value());
  const auto pooling_of = [](uint32_t type) {
    return pooling_in(tiny_llama().add_u32("llama.pooling_type", type)).value();
  };
  EXPECT_FALSE(pooling_of(0));
  EXPECT_EQ(pooling_of(1)->pooling, Pooling::kMean);
  EXPECT_EQ(pooling_of(2)->pooling, Pooling::kFirst);
  EXPECT_EQ(pooling_of(3)->pooling, Pooling::kLast);
  EXPECT_TRUE(pooling_of(3)->normalise);
  EXPECT_FALSE(pooling_of(3)->head);
}

TEST(PoolingConfig, AGgufFileOfRanksHasAHead) {
  GgufBuilder file = tiny_llama().add_u32("llama.pooling_type", 4);
  EXPECT_NE(pooling_in(file).status().message().find("cls.output.weight"), std::string::npos);
  file.add_tensor("cls.output.weight", {32, 2}, 0);
  EXPECT_EQ(pooling_in(file).value()->head.labels,
            (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  file.add_strings("llama.classifier.output_labels", {"good", "bad"});
  const PoolingConfig named = *pooling_in(file).value();
  EXPECT_EQ(named.head.labels, (std::vector<std::string>{"good", "bad"}));
  EXPECT_EQ(named.head.classes, ScoreActivation::kSoftmax);
  EXPECT_FALSE(named.positive_row);  // Qwen3's alone are "yes" and "no"
  file.add_text("tokenizer.chat_template.rerank", "{query}{document}");
  EXPECT_EQ(pooling_in(file).value()->pair_template, "{query}{document}");
}

TEST(PoolingConfig, AGgufFileThatLiesIsRefusedByItsKey) {
  const auto refused = [](const GgufBuilder& file, std::string_view word) {
    const auto read = pooling_in(file);
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status().message();
  };
  refused(tiny_llama().add_u32("llama.pooling_type", 9), "llama.pooling_type: 9");
  refused(tiny_llama().add_text("llama.pooling_type", "last"), "llama.pooling_type");
  GgufBuilder ranks = tiny_llama().add_u32("llama.pooling_type", 4);
  refused(GgufBuilder(ranks).add_tensor("cls.output.weight", {32}, 0), "cls.output.weight");
  ranks.add_tensor("cls.output.weight", {32, 2}, 0);
  refused(GgufBuilder(ranks).add_strings("llama.classifier.output_labels", {"good"}),
          "output_labels");
  refused(ranks.add_u32("llama.classifier.output_labels", 2), "output_labels");
}

}  // namespace
}  // namespace headrace::pooling_config_test
