#include "bench/load_page.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace headrace::load_page_test {
namespace {

LoadOutcome answered(double sent, int tokens) {
  LoadOutcome outcome{
      .sent = sent, .first_token = sent + 0.05, .prompt_tokens = 8, .output_tokens = tokens};
  outcome.gaps.assign(static_cast<size_t>(tokens - 1), 0.01F);
  outcome.last_token = outcome.ended = outcome.first_token + 0.01 * (tokens - 1);
  outcome.status = 200;
  return outcome;
}

size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LoadPage, ShowsFiguresAndPlotsAndAsksForNothing) {
  std::vector<LoadOutcome> outcomes;
  for (int i = 0; i < 20; ++i) outcomes.push_back(answered(0.1 * i, 11));
  const std::string page = to_html({.facts = {{"server", "http://<x>"}}, .outcomes = outcomes});
  EXPECT_EQ(count_of(page, "<svg"), 4u);
  EXPECT_EQ(count_of(page, "<polyline"), 6u);  // output, under way, four shares
  EXPECT_EQ(count_of(page, "<circle"), 20u);
  EXPECT_NE(page.find("20 answered, 0 refused, 0 failed"), page.npos);
  EXPECT_NE(page.find("<td>to the first token (TTFT)</td><td>50.00</td>"), page.npos);
  EXPECT_NE(page.find("http://&lt;x&gt;"), page.npos);
  for (const char* outside : {"<script", "src=", "href=", "url(", "@import"}) {
    EXPECT_EQ(page.find(outside), page.npos) << outside;
  }
  EXPECT_EQ(page.find("nan"), page.npos);
}

TEST(LoadPage, ARunOfFailuresSaysWhy) {
  const std::vector<LoadOutcome> outcomes(3, {.error = "refused <b>"});
  const std::string page = to_html({.outcomes = outcomes});
  EXPECT_NE(page.find("The first failure: refused &lt;b&gt;"), page.npos);
  EXPECT_EQ(count_of(page, "nothing to show"), 4u);
  EXPECT_EQ(page.find("nan"), page.npos);
}

TEST(LoadPage, WholeAnswersHaveNoGaps) {
  LoadOutcome outcome = answered(0, 4);
  outcome.gaps.clear();
  outcome.first_token = outcome.last_token;
  const std::vector<LoadOutcome> outcomes = {outcome};
  const std::string page = to_html({.outcomes = outcomes});
  EXPECT_EQ(count_of(page, "nothing to show"), 0u);
  EXPECT_EQ(page.find("nan"), page.npos);
}

TEST(LoadPage, AFileThatCannotBeIsToldBeforeTheRun) {
  EXPECT_FALSE(LoadPageFile::open("")->is_wanted());
  const auto none = LoadPageFile::open("/no/such/folder/run.html");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("--report /no/such/folder/run.html: cannot be written"),
            std::string::npos);
  const std::string path = testing::TempDir() + "load_page_test.html";
  const auto file = LoadPageFile::open(path);
  ASSERT_TRUE(file.ok());
  const std::vector<LoadOutcome> outcomes = {answered(0, 3)};
  ASSERT_TRUE(file->write({.outcomes = outcomes}).ok());
  std::ifstream read(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(read), {}), to_html({.outcomes = outcomes}));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace headrace::load_page_test
