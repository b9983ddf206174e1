#include "base/timeline.h"

#include <gtest/gtest.h>

#include <regex>

namespace headrace::timeline_test {
namespace {

TEST(Timeline, TellsSpansInTheOrderOfTheirBeginnings) {
  Timeline timeline;
  {
    Timeline::Span outer(&timeline, "outer");
    Timeline::Span inner(&timeline, "inner");
    inner.end();
    Timeline::Span none(nullptr, "nobody asks");
  }
  timeline.mark("ready");
  Timeline::Span open(&timeline, "open");
  const std::string text = timeline.to_string();
  EXPECT_TRUE(
      std::regex_match(text, std::regex(R"(\d+\.\d{3} to \d+\.\d{3} s outer; )"
                                        R"(\d+\.\d{3}( to \d+\.\d{3})? s inner; )"
                                        R"(\d+\.\d{3} s ready; \d+\.\d{3} to \.\.\. s open)")))
      << text;
}

// The test program has lived for a moment, and no longer than it can have.
TEST(Timeline, BeginsWithTheProcess) {
  const Timeline timeline;
  EXPECT_GE(timeline.seconds(), 0.0);
  EXPECT_LT(timeline.seconds(), 3600.0);
}

}  // namespace
}  // namespace headrace::timeline_test
