#include "route/stream_journal.h"

#include <gtest/gtest.h>

#include "route/json_members.h"

namespace headrace::stream_journal_test {
namespace {

constexpr std::string_view kHead = ": journal {\"head\": {\"id\": \"x\", \"seeds\": [1, 2]}}\n\n";

std::string arrival(int i) { return ": journal [" + std::to_string(i) + "]\n\n"; }
std::string event(int i) { return "data: {\"t\": " + std::to_string(i) + "}\n\n"; }

// What a worker sends that computes arrivals [first, last], and the text alone.
std::string worker_stream(int first, int last) {
  std::string text;
  for (int i = first; i <= last; ++i) text += arrival(i) + event(10 * i) + event(10 * i + 1);
  return text;
}
std::string client_stream(int first, int last) {
  std::string text;
  for (int i = first; i <= last; ++i) text += event(10 * i) + event(10 * i + 1);
  return text;
}

TEST(StreamJournal, LinesAreTakenOutHoweverTheBytesAreCut) {
  const std::string stream =
      std::string(kHead) + worker_stream(1, 3) + ": keep-alive\n\n" + "data: [DONE]\n\n";
  const std::string wanted = client_stream(1, 3) + ": keep-alive\n\n" + "data: [DONE]\n\n";
  for (size_t piece = 1; piece < stream.size(); ++piece) {
    StreamJournal journal(StreamFraming::kEvents, 1 << 20);
    std::string out;
    for (size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(journal.feed(std::string_view(stream).substr(at, piece), out).ok());
    }
    ASSERT_TRUE(journal.end(out).ok());
    EXPECT_EQ(out, wanted) << piece;
    EXPECT_TRUE(journal.resumable());
    EXPECT_EQ(journal.arrivals(), 3u);
  }
}

// A fault after every byte: another worker goes on, and the client has each event once.
TEST(StreamJournal, AStreamThatBreaksAnywhereGoesOnWithoutALossOrARepetition) {
  const std::string stream = std::string(kHead) + worker_stream(1, 4) + "data: [DONE]\n\n";
  for (size_t cut = kHead.size(); cut < stream.size(); ++cut) {
    StreamJournal journal(StreamFraming::kEvents, 1 << 20);
    std::string out;
    ASSERT_TRUE(journal.feed(std::string_view(stream).substr(0, cut), out).ok());
    ASSERT_TRUE(journal.resumable());
    const int known = static_cast<int>(journal.arrivals());
    const std::string member = journal.resume_member(false);
    EXPECT_EQ(member.find("resend_last") != member.npos, known > 0);
    journal.begin_resumed();
    // The new worker sends the last arrival's events once more, then goes on.
    std::string again = known > 0 ? client_stream(known, known) : "";
    if (known == 4) again += "data: [DONE]\n\n";
    again += worker_stream(known + 1, 4);
    if (known < 4) again += "data: [DONE]\n\n";
    ASSERT_TRUE(journal.feed(again, out).ok()) << cut;
    ASSERT_TRUE(journal.end(out).ok());
    EXPECT_EQ(out, client_stream(1, 4) + "data: [DONE]\n\n") << cut;
  }
}

TEST(StreamJournal, TheJournalIsKeptVerbatim) {
  StreamJournal journal(StreamFraming::kEvents, 1 << 20);
  std::string out;
  ASSERT_TRUE(journal.feed(std::string(kHead) + ": journal [0, {\"a\":  1}]\n\n", out).ok());
  EXPECT_EQ(journal.resume_member(true),
            "\"headrace_resume\": {\"head\": {\"id\": \"x\", \"seeds\": [1, 2]}, \"journal\": "
            "[[0, {\"a\":  1}]], \"resend_last\": true, \"inexact\": true}");
}

TEST(StreamJournal, AResumedStreamThatDiffersIsAnError) {
  StreamJournal journal(StreamFraming::kEvents, 1 << 20);
  std::string out;
  ASSERT_TRUE(journal.feed(std::string(kHead) + worker_stream(1, 1), out).ok());
  journal.begin_resumed();
  EXPECT_FALSE(journal.feed(event(99), out).ok());
  EXPECT_EQ(out, client_stream(1, 1));
  journal.begin_resumed();
  EXPECT_FALSE(journal.feed(event(10) + arrival(2), out).ok());  // one event is missing
}

TEST(StreamJournal, AnErrorEventIsHeldBack) {
  for (const std::string_view error :
       {"data: {\"error\":{\"code\":500}}\n\n", "event: error\ndata: {\"type\":\"error\"}\n\n",
        "event: response.failed\ndata: {}\n\n"}) {
    StreamJournal journal(StreamFraming::kEvents, 1 << 20);
    std::string out;
    ASSERT_TRUE(journal
                    .feed(std::string(kHead) + worker_stream(1, 1) + std::string(error) +
                              "data: [DONE]\n\n",
                          out)
                    .ok());
    EXPECT_TRUE(journal.failed());
    EXPECT_EQ(journal.error_event(), error);
    EXPECT_EQ(out, client_stream(1, 1));
  }
}

// A form that came to a dead end: no other worker would do better.
TEST(StreamJournal, AResponseThatHasFailedByItselfIsPassedOn) {
  const std::string failed = "event: response.failed\ndata: {\"type\":\"response.failed\"}\n\n";
  StreamJournal journal(StreamFraming::kEvents, 1 << 20);
  std::string out;
  ASSERT_TRUE(journal
                  .feed(std::string(kHead) + arrival(1) + event(1) +
                            ": journal {\"t\":[],\"f\":\"dead_end\"}\n\n" + failed,
                        out)
                  .ok());
  EXPECT_FALSE(journal.failed());
  EXPECT_EQ(out, event(1) + failed);
  EXPECT_TRUE(journal.end(out).ok());
}

TEST(StreamJournal, WhatFollowsALossIsTheErrorWhateverItsForm) {
  StreamJournal journal(StreamFraming::kLines, 1 << 20);
  std::string out;
  ASSERT_TRUE(journal.feed(std::string(kHead) + arrival(1) + "{\"a\":1}\n", out).ok());
  ASSERT_TRUE(journal.feed(": journal {\"lost\":\"no valid output\"}\n\n", out).ok());
  EXPECT_FALSE(journal.failed());
  ASSERT_TRUE(journal.feed("{\"whatever\":1}\n", out).ok());
  EXPECT_TRUE(journal.failed());
  EXPECT_EQ(journal.error_event(), "{\"whatever\":1}\n");
  EXPECT_EQ(out, "{\"a\":1}\n");
  EXPECT_EQ(journal.arrivals(), 1u);
}

TEST(StreamJournal, EventsThatComeAgainMayHaveOtherTimes) {
  const auto event_at = [](int at, const std::string& text) {
    return "{\"created_at\":\"2026-" + std::to_string(at) + "\",\"text\":\"" + text +
           "\",\"eval_duration\":" + std::to_string(at) + ",\"done\":true}\n";
  };
  EXPECT_EQ(without_times(event_at(1, "x")), without_times(event_at(23, "x")));
  EXPECT_NE(without_times(event_at(1, "x")), without_times(event_at(1, "y")));
  StreamJournal journal(StreamFraming::kLines, 1 << 20);
  std::string out;
  ASSERT_TRUE(journal.feed(std::string(kHead) + arrival(1) + event_at(1, "x"), out).ok());
  journal.begin_resumed();
  ASSERT_TRUE(journal.feed(event_at(22, "x") + event_at(23, "z"), out).ok());
  EXPECT_EQ(out, event_at(1, "x") + event_at(23, "z"));
  journal.begin_resumed();
  EXPECT_FALSE(journal.feed(event_at(24, "y"), out).ok());
}

TEST(StreamJournal, LinesOfJsonAreEventsToo) {
  StreamJournal journal(StreamFraming::kLines, 1 << 20);
  std::string out;
  const std::string stream =
      std::string(kHead) + arrival(1) + "{\"a\":1}\n" + arrival(2) + "{\"a\":2}\n{\"done\":true}\n";
  ASSERT_TRUE(journal.feed(stream, out).ok());
  EXPECT_EQ(out, "{\"a\":1}\n{\"a\":2}\n{\"done\":true}\n");
  EXPECT_TRUE(journal.resumable());
}

TEST(StreamJournal, AStreamWithoutJournalPassesAsItComes) {
  StreamJournal journal(StreamFraming::kEvents, 1 << 20);
  std::string out;
  ASSERT_TRUE(journal.feed("data: 1", out).ok());
  EXPECT_EQ(out, "data: 1");
  ASSERT_TRUE(journal.feed("\r\n\r\n: journal [1]\n\n", out).ok());
  EXPECT_EQ(out, "data: 1\r\n\r\n: journal [1]\n\n");
  EXPECT_FALSE(journal.resumable());
}

TEST(StreamJournal, AJournalThatIsTooLongIsGivenUp) {
  StreamJournal journal(StreamFraming::kEvents, 100);
  std::string out;
  ASSERT_TRUE(journal.feed(std::string(kHead) + worker_stream(1, 50), out).ok());
  EXPECT_EQ(out, client_stream(1, 50));
  EXPECT_FALSE(journal.resumable());
  BodyBudget budget(400);  // of all together
  {
    StreamJournal one(StreamFraming::kEvents, 1 << 20, &budget);
    StreamJournal other(StreamFraming::kEvents, 1 << 20, &budget);
    ASSERT_TRUE(one.feed(std::string(kHead) + worker_stream(1, 50), out).ok());
    EXPECT_TRUE(one.resumable());
    EXPECT_GT(budget.bytes(), 0u);
    ASSERT_TRUE(other.feed(std::string(kHead) + worker_stream(1, 50), out).ok());
    EXPECT_FALSE(other.resumable());
  }
  EXPECT_EQ(budget.bytes(), 0u);
}

// A worker that sends events and no arrival fills no memory.
TEST(StreamJournal, EventsBehindTheLastArrivalCountAsTheJournalDoes) {
  BodyBudget budget(1 << 20);
  StreamJournal journal(StreamFraming::kEvents, 10'000, &budget);
  std::string out;
  ASSERT_TRUE(journal.feed(std::string(kHead) + arrival(1) + event(1), out).ok());
  for (int i = 0; i < 20; ++i) {  // what an arrival leaves behind is given back
    for (int j = 0; j < 100; ++j) ASSERT_TRUE(journal.feed(event(j), out).ok());
    EXPECT_TRUE(journal.resumable());
    EXPECT_LT(budget.bytes(), 10'000u);
    ASSERT_TRUE(journal.feed(arrival(i), out).ok());
  }
  for (int j = 0; j < 1000; ++j) ASSERT_TRUE(journal.feed(event(j), out).ok());
  EXPECT_FALSE(journal.resumable());
  EXPECT_EQ(budget.bytes(), 0u);
  EXPECT_TRUE(out.ends_with(event(999)));
}

TEST(StreamJournal, AnEndInsideOfAnEventIsAFault) {
  const std::string stream = std::string(kHead) + worker_stream(1, 2);
  for (const std::string_view tail : {"data: {\"t\"", "data: 1\n", ": journal [3", ": jour"}) {
    StreamJournal journal(StreamFraming::kEvents, 1 << 20);
    std::string out;
    ASSERT_TRUE(journal.feed(stream + std::string(tail), out).ok());
    EXPECT_FALSE(journal.end(out).ok()) << tail;
    EXPECT_TRUE(journal.resumable());
    EXPECT_EQ(out, client_stream(1, 2));
  }
  StreamJournal lost(StreamFraming::kEvents, 1 << 20);
  std::string out;
  ASSERT_TRUE(lost.feed(stream + ": journal {\"lost\":\"x\"}\n\n", out).ok());
  EXPECT_FALSE(lost.end(out).ok());
}

TEST(StreamJournal, OnlyAnObjectTakesAMember) {
  for (const std::string_view body : {"{}", " \n{\"a\":1}"}) EXPECT_TRUE(takes_member(body));
  for (const std::string_view body : {"", " ", "[]", "[{}]", "x{"})
    EXPECT_FALSE(takes_member(body));
}

TEST(StreamJournal, TheMemberIsTheFirstOfTheBody) {
  EXPECT_EQ(with_first_member("{}", "\"a\": 1"), "{\"a\": 1}");
  EXPECT_EQ(with_first_member(" { \"b\": {}}", "\"a\": 1"), " {\"a\": 1, \"b\": {}}");
}

TEST(JsonMembers, FindsMembersAmongWhateverStandsThere) {
  constexpr std::string_view kText =
      R"( {"a" : "x\"}{", "b":[1,{"c":"]"}],"c": true , "d":-1.5e3,"e":{"model":"no"},"model":"m"})";
  EXPECT_EQ(json_member(kText, "a"), R"("x\"}{")");
  EXPECT_EQ(json_member(kText, "b"), R"([1,{"c":"]"}])");
  EXPECT_EQ(json_member(kText, "c"), "true");
  EXPECT_EQ(json_member(kText, "d"), "-1.5e3");
  EXPECT_EQ(json_string(json_member(kText, "model")), "m");
  EXPECT_EQ(json_member(kText, "x"), "");
}

TEST(JsonMembers, WhatIsNoObjectHasNone) {
  for (const std::string_view text :
       {"", "[]", "{", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":\"", "{\"a\":[", "{\"a\":\"\\", "x"}) {
    JsonMembers members(text);
    EXPECT_FALSE(members.next()) << text;
  }
}

}  // namespace
}  // namespace headrace::stream_journal_test
