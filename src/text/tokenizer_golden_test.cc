// SmolLM2's tokenizer against ids on which two independent implementations agree. The vocabularies
// of the other models are too large for the tree: tests/golden/tokenizer_test.cc takes their files.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer.h"
#include "text/vocab_fixture.h"

namespace headrace::tokenizer_golden_test {
namespace {

std::vector<Json> read_rows(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line, '\n');) {
    Result<Json> row = parse_json(line);
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (row.ok()) rows.push_back(*std::move(row));
  }
  return rows;
}

std::vector<TokenId> ids_of(const Json& array) {
  std::vector<TokenId> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

TEST(TokenizerGolden, SmolLM2IdsAndRoundTrip) {
  const auto tokenizer = *Tokenizer::create(smollm2_vocab());
  const std::vector<Json> rows = read_rows("tests/data/text/tokenizer.jsonl");
  ASSERT_EQ(rows.size(), 255u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.find("id")->as_string());
    const std::string& text = row.find("text")->as_string();
    const Json& want = *row.find("models")->find("smollm2");
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(*ids, ids_of(*want.find("ids")));
    EXPECT_EQ(tokenizer->decode(*ids, false) == text, want.find("roundtrip")->as_bool());
    const Json* special = want.find("ids_special") ? want.find("ids_special") : want.find("ids");
    EXPECT_EQ(*tokenizer->encode(text, {.parse_special = true}), ids_of(*special));
  }
}

// The vocabulary decides what is special, and text is not normalised: of the rows where the
// implementations differ, SmolLM2 has none, and this choice is the one for those to come.
TEST(TokenizerGolden, NoDisagreementOnSmolLM2) {
  for (const Json& row : read_rows("tests/data/text/tokenizer_disagreements.jsonl")) {
    EXPECT_NE(row.find("model")->as_string(), "smollm2");
  }
}

}  // namespace
}  // namespace headrace::tokenizer_golden_test
