#include "apps/chat_session.h"

#include <gtest/gtest.h>

#include "apps/answer_screen.h"

namespace headrace::chat_session_test {
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
                                    {"top_k", "1.5"},
                                    {"seed", "0.5"},
                                    {"max_tokens", "-0.5"},
                                    {"colour", "red"}}) {
    EXPECT_FALSE(set_parameter(sampling, name, value).ok()) << name << " " << value;
  }
  EXPECT_FLOAT_EQ(sampling.temperature, 1.0f);
  EXPECT_FLOAT_EQ(sampling.top_p, 1.0f);
}

TEST(ParameterNames, AreAllThatCanBeSet) {
  EXPECT_EQ(parameter_names(),
            "temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, "
            "frequency_penalty, max_tokens, seed");
}

TEST(Conversation, TakesRolesAndTextsOnly) {
  EXPECT_TRUE(Conversation::parse(R"([{"role":"user","content":"hi"}])").ok());
  EXPECT_TRUE(Conversation::parse("[]").ok());
  for (const char* text : {"", "{}", "[1]", R"([{"role":"user"}])", R"([{"role":1,"content":"x"}])",
                           R"([{"role":"user","content":[]}])"}) {
    EXPECT_FALSE(Conversation::parse(text).ok()) << text;
  }
}

TEST(Conversation, IsWhatItWasWhenItIsReadAgain) {
  Conversation conversation;
  conversation.set_system("Be \"brief\".");
  conversation.add_user("a\nb 日本");
  conversation.add_answer("");
  const Result<Conversation> again = Conversation::parse(conversation.to_text());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->all_messages(), conversation.all_messages());
  EXPECT_EQ(again->system(), conversation.system());
}

TEST(AnswerScreen, ShowsThoughtsApart) {
  AnswerScreen plain(AnswerScreen::Look::kPlain);
  EXPECT_EQ(plain.show({.text = "hm", .thought = true}), "<think>\nhm");
  EXPECT_EQ(plain.show({.text = "**yes**"}), "\n</think>\n\n**yes**");
  EXPECT_EQ(plain.finish(), "\n");
  AnswerScreen rendered(AnswerScreen::Look::kRendered, 40);
  std::string shown = rendered.show({.text = "hm", .thought = true});
  shown += rendered.show({.text = "\n\n**yes**"});
  shown += rendered.finish();
  EXPECT_EQ(shown, "\x1b[2mhm\x1b[0m\n\n\x1b[1myes\x1b[0m\n");
}

}  // namespace
}  // namespace headrace::chat_session_test
