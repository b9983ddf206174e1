#include "apps/chat_commands.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "apps/fake_chat_backend.h"

namespace headrace::chat_commands_test {
namespace {

using Next = ChatCommands::Next;

class ChatCommandsTest : public testing::Test {
 protected:
  ~ChatCommandsTest() override { std::filesystem::remove_all(folder_); }

  // Takes an input, and answers if that is due.
  Next take(std::string_view input) {
    said_.clear();
    const Next next = commands_.take(input);
    if (next == Next::kAnswer) answer();
    return next;
  }
  void answer() {
    const auto started = session_.begin_answer();
    if (!started.ok()) {
      said_ += started.status().message();
      return;
    }
    std::string text;
    while (const auto delta = (*started)->next()) text += delta->thought ? "" : delta->text;
    session_.end_answer(**started, text);
  }
  size_t messages() { return session_.conversation().messages().as_array().size(); }
  std::string last(std::string_view role) {
    return session_.conversation().last_of(role).value_or("none");
  }

  const std::string folder_ = testing::TempDir() + "/chat_commands_test";
  FakeChatBackend backend_;
  std::string said_, copied_;
  ChatSession session_{backend_, {}, [this](std::string_view line) { said_ += line; }};
  const SavedChats saved_{folder_};
  ChatCommands commands_{session_, saved_,
                         [this](std::string_view line) { (said_ += line) += '\n'; },
                         [this](std::string_view text) {
                           copied_ = text;
                           return true;
                         }};
};

TEST_F(ChatCommandsTest, AMessageIsAnswered) {
  EXPECT_EQ(take("  hello \n"), Next::kAnswer);
  EXPECT_EQ(last("user"), "hello");
  EXPECT_EQ(last("assistant"), "an answer");
  EXPECT_EQ(take(" "), Next::kRead);
  EXPECT_EQ(messages(), 2U);
}

TEST_F(ChatCommandsTest, ThoughtsAreNoPartOfTheConversation) {
  backend_.deltas = {{.text = "hm", .thought = true}, {.text = "yes"}};
  take("well?");
  EXPECT_EQ(last("assistant"), "yes");
}

TEST_F(ChatCommandsTest, EveryCommandIsInTheHelp) {
  take("/help");
  for (const std::string& name : ChatCommands::names()) {
    EXPECT_NE(said_.find("  " + name + " "), std::string::npos) << name;
  }
  for (const char* name : {"/model", "/system", "/save", "/load", "/set", "/retry", "/edit",
                           "/copy", "/tokens", "/help", "/clear", "/exit"}) {
    EXPECT_NE(said_.find(name), std::string::npos) << name;
  }
}

TEST_F(ChatCommandsTest, RetryAsksTheSameAgain) {
  EXPECT_EQ(take("/retry"), Next::kRead);
  EXPECT_NE(said_.find("no message to answer"), std::string::npos);
  take("one");
  EXPECT_EQ(take("/retry"), Next::kAnswer);
  ASSERT_EQ(backend_.asked.size(), 2U);
  EXPECT_EQ(backend_.asked[0], backend_.asked[1]);
  EXPECT_EQ(messages(), 2U);
}

TEST_F(ChatCommandsTest, EditReplacesTheLastMessage) {
  EXPECT_EQ(take("/edit"), Next::kRead);
  take("one");
  take("two");
  EXPECT_EQ(take("/edit"), Next::kEdit);
  EXPECT_EQ(commands_.last_message(), "two");
  EXPECT_EQ(messages(), 4U);  // until it is edited
  EXPECT_EQ(commands_.replace_last("three"), Next::kAnswer);
  answer();
  EXPECT_EQ(messages(), 4U);
  EXPECT_EQ(last("user"), "three");
  EXPECT_EQ(take("/edit four"), Next::kAnswer);
  EXPECT_EQ(last("user"), "four");
  EXPECT_EQ(commands_.replace_last(" "), Next::kRead);
  EXPECT_EQ(last("user"), "four");
}

TEST_F(ChatCommandsTest, CopyTakesTheAnswerOrItsCode) {
  take("/copy");
  EXPECT_NE(said_.find("no answer to copy"), std::string::npos);
  backend_.deltas = {{.text = "Look:\n```c\nint x;\n```\nand\n```\ny\nz\n```\n"}};
  take("code");
  take("/copy");
  EXPECT_TRUE(copied_.starts_with("Look:"));
  take("/copy code");
  EXPECT_EQ(copied_, "y\nz\n");
}

TEST_F(ChatCommandsTest, ChatsAreSavedByName) {
  take("/save");
  EXPECT_NE(said_.find("has no name yet"), std::string::npos);
  take("/system Be brief.");
  take("one");
  take("/save my chat");
  EXPECT_NE(said_.find("saved to"), std::string::npos) << said_;
  struct stat file {};
  ASSERT_EQ(::stat((folder_ + "/my chat.json").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
  take("two");
  take("/save");  // under the same name
  take("/load");
  EXPECT_NE(said_.find("  my chat\n"), std::string::npos) << said_;
  take("/clear");
  EXPECT_EQ(messages(), 0U);
  take("/system");
  take("/load my chat");
  EXPECT_EQ(messages(), 4U);
  EXPECT_EQ(session_.conversation().system(), "Be brief.");
}

TEST_F(ChatCommandsTest, BadNamesAndFilesAreToldAndChangeNothing) {
  take("one");
  for (const char* name : {"..", ".hidden", "a\tb", "x;y"}) {
    take(std::string("/save ") + name);
    EXPECT_NE(said_.find("is no name for a chat"), std::string::npos) << said_;
  }
  take("/load nothing");
  EXPECT_NE(said_.find("cannot be read"), std::string::npos);
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/bad.json") << "[1]";
  take("/load bad");
  EXPECT_NE(said_.find("each message must have"), std::string::npos);
  EXPECT_EQ(messages(), 2U);
}

TEST_F(ChatCommandsTest, SetSaysWhatWasNamed) {
  take("/set temperature 0.5");
  EXPECT_FLOAT_EQ(session_.sampling().params.temperature, 0.5f);
  EXPECT_EQ(session_.sampling().named, std::vector<std::string>{"temperature"});
  take("/set heat 1");
  EXPECT_NE(said_.find("'heat' cannot be set: temperature, top_p"), std::string::npos);
  take("/set");
  EXPECT_NE(said_.find("temperature"), std::string::npos);
}

TEST_F(ChatCommandsTest, ModelsAreListedAndChanged) {
  take("/model");
  EXPECT_NE(said_.find("  a\n  b\n"), std::string::npos);
  take("/model b");
  EXPECT_EQ(said_, "(fake b)\n");
  take("/model c");
  EXPECT_EQ(said_, "no such model\n");
}

TEST_F(ChatCommandsTest, TokensAreCounted) {
  backend_.context = 1000;
  take("hello");
  take("/tokens");
  EXPECT_NE(said_.find("14 tokens of the 1000"), std::string::npos) << said_;
  EXPECT_NE(said_.find("1 answers; prompts 10 tokens"), std::string::npos) << said_;
}

TEST_F(ChatCommandsTest, OldTurnsGoWhereTheContextIsFull) {
  backend_.context = 200;
  take(std::string(70, 'a'));
  take("b");
  EXPECT_NE(said_.find("1 oldest turns were dropped"), std::string::npos) << said_;
  EXPECT_EQ(backend_.asked.back().as_array().size(), 1U);
  EXPECT_EQ(messages(), 4U);  // the chat keeps them
}

TEST_F(ChatCommandsTest, AsFewTurnsGoAsMustWithFewCounts) {
  for (int i = 0; i < 500; ++i) take("0123456789a");  // 20 tokens a turn
  backend_.context = 200;
  backend_.counts = 0;
  take("0123456789a");
  EXPECT_NE(said_.find("497 oldest turns were dropped"), std::string::npos) << said_;
  EXPECT_EQ(backend_.asked.back().as_array().size(), 7U);
  EXPECT_LE(backend_.counts, 11);
}

TEST_F(ChatCommandsTest, NoTurnIsLostWhereANewAnswerFails) {
  take("one");
  take("two");
  backend_.deltas.clear();
  backend_.failure = unavailable("gone");
  take("/retry");
  EXPECT_EQ(messages(), 4U);
  EXPECT_EQ(last("assistant"), "an answer");
  take("/edit three");
  EXPECT_EQ(messages(), 4U);
  EXPECT_EQ(last("user"), "two");
  EXPECT_EQ(commands_.last_message(), "three");  // and is not lost either
  backend_.refusal = unavailable("busy");
  take("/retry");
  EXPECT_EQ(last("user"), "two");
  backend_.refusal = ok_status();
  backend_.deltas = {{.text = "at last"}};
  take("/retry");
  EXPECT_EQ(messages(), 4U);
  EXPECT_EQ(last("user"), "three");
  EXPECT_EQ(last("assistant"), "at last");
}

TEST_F(ChatCommandsTest, RetryMeansAMessageWhoseAnswerFailed) {
  take("one");
  backend_.refusal = unavailable("busy");
  take("two");
  EXPECT_EQ(messages(), 2U);
  backend_.refusal = ok_status();
  take("/system Be brief.");
  EXPECT_EQ(take("/retry"), Next::kAnswer);
  EXPECT_EQ(messages(), 4U);
  EXPECT_EQ(last("user"), "two");
  EXPECT_EQ(session_.conversation().system(), "Be brief.");
}

TEST_F(ChatCommandsTest, AQuestionWithoutAnAnswerIsNotLost) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/open.json") << R"([{"role":"user","content":"well?"}])";
  take("/load open");
  backend_.deltas.clear();
  take("/retry");
  EXPECT_EQ(messages(), 1U);
  EXPECT_EQ(last("user"), "well?");
}

TEST_F(ChatCommandsTest, AChatIsReplacedOnlyByItselfOrOnDemand) {
  take("one");
  take("/save kept");
  take("/save kept");  // this one
  EXPECT_NE(said_.find("saved to"), std::string::npos) << said_;
  take("/clear");
  take("two");
  take("/save");
  EXPECT_NE(said_.find("has no name yet"), std::string::npos) << said_;
  take("/save kept");
  EXPECT_NE(said_.find("/save kept! replaces it"), std::string::npos) << said_;
  ASSERT_TRUE(saved_.load("kept").ok());
  EXPECT_EQ(saved_.load("kept")->last_of("user"), "one");
  take("/save kept!");
  EXPECT_EQ(saved_.load("kept")->last_of("user"), "two");
}

TEST_F(ChatCommandsTest, WhatIsNoFileIsNotLoaded) {
  std::filesystem::create_directories(folder_ + "/folder.json");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe.json").c_str(), 0600), 0);
  take("one");
  for (const std::string name : {"folder", "pipe", "/dev/zero"}) {
    take("/load " + name);
    EXPECT_NE(said_.find("cannot be read (it is no file)"), std::string::npos) << said_;
  }
  std::ofstream(folder_ + "/huge.json").close();
  std::filesystem::resize_file(folder_ + "/huge.json", 65 << 20);
  take("/load huge");
  EXPECT_NE(said_.find("more than 64 MB"), std::string::npos) << said_;
  EXPECT_EQ(messages(), 2U);
}

TEST_F(ChatCommandsTest, ARefusedMessageIsLeftOut) {
  take("one");
  backend_.refusal = unavailable("busy");
  take("two");
  EXPECT_EQ(last("user"), "one");
  backend_.refusal = ok_status();
  backend_.deltas.clear();
  backend_.failure = unavailable("gone");
  take("three");
  EXPECT_EQ(last("user"), "one");
  backend_.failure = ok_status();
  take("stopped before it began");
  EXPECT_EQ(last("user"), "one");
  backend_.deltas = {{.text = "half"}};
  take("four");  // what came is kept
  EXPECT_EQ(last("assistant"), "half");
}

TEST_F(ChatCommandsTest, WhatIsNoCommandIsTold) {
  EXPECT_EQ(take("/nonsense"), Next::kRead);
  EXPECT_EQ(said_, "/nonsense is no command: /help lists them\n");
  EXPECT_EQ(take("/exit"), Next::kExit);
}

}  // namespace
}  // namespace headrace::chat_commands_test
