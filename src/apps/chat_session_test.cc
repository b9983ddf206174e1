#include "apps/chat_session.h"

#include <gtest/gtest.h>

#include "apps/terminal_text.h"

namespace headrace {
namespace {

TEST(SetParameter, SetsWhatItNames) {
  SamplingParams sampling;
  EXPECT_TRUE(set_parameter(sampling, "temperature", "0.7").ok());
  EXPECT_TRUE(set_parameter(sampling, "top_k", "40").ok());
  EXPECT_TRUE(set_parameter(sampling, "seed", "9007199254740992").ok());
  EXPECT_TRUE(set_parameter(sampling, "max_tokens", "-1").ok());
  EXPECT_FLOAT_EQ(sampling.temperature, 0.7f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.seed, uint64_t{1} << 53);
  EXPECT_EQ(sampling.max_tokens, -1);
}

TEST(SetParameter, RefusesAndLeavesTheRest) {
  SamplingParams sampling;
  for (const auto& [name, value] : {std::pair{"temperature", "hot"},
                                    {"temperature", ""},
                                    {"temperature", "-1"},
                                    {"temperature", "nan"},
                                    {"top_p", "0"},
                                    {"top_p", "1.1"},
                                    {"top_k", "1x"},
                                    {"colour", "red"}}) {
    EXPECT_FALSE(set_parameter(sampling, name, value).ok()) << name << " " << value;
  }
  EXPECT_FLOAT_EQ(sampling.temperature, 1.0f);
  EXPECT_FLOAT_EQ(sampling.top_p, 1.0f);
}

TEST(ParseMessages, TakesRolesAndTextsOnly) {
  EXPECT_TRUE(parse_messages(R"([{"role":"user","content":"hi"}])").ok());
  EXPECT_TRUE(parse_messages("[]").ok());
  for (const char* text : {"", "{}", "[1]", R"([{"role":"user"}])", R"([{"role":1,"content":"x"}])",
                           R"([{"role":"user","content":[]}])"}) {
    EXPECT_FALSE(parse_messages(text).ok()) << text;
  }
}

TEST(TerminalSafe, DropsWhatATerminalObeys) {
  EXPECT_EQ(terminal_safe("a\n\tb"), "a\n\tb");
  EXPECT_EQ(terminal_safe("\x1b[2Jx\x07\x7f\r"), "[2Jx");
  EXPECT_EQ(terminal_safe("\xc2\x9b"
                          "31mred \xc3\xa9 \xe2\x82\xac"),
            "31mred é €");
}

}  // namespace
}  // namespace headrace
