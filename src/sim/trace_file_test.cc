#include "sim/trace_file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/rng.h"

namespace headrace::trace_file_test {
namespace {

std::vector<TraceRequest> parsed(std::string_view text) {
  auto trace = parse_trace(text, "t.csv");
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return trace.ok() ? *std::move(trace) : std::vector<TraceRequest>();
}

std::string refusal(std::string_view text) {
  const auto trace = parse_trace(text, "t.csv");
  EXPECT_FALSE(trace.ok()) << text;
  return trace.ok() ? "" : trace.status().message();
}

TEST(TraceFile, RowsComeInOrderOfArrivalFromTheEarliest) {
  const auto trace = parsed(
      "arrival,input,output,tenant,priority,background,max_tokens,note\r\n"
      "12.5, 100, 7, b, -2, 1, 20, x\r\n"
      "\r\n"
      "10,3,1,a,,,,\r\n");
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].arrival_seconds, 0);
  EXPECT_EQ(trace[0].prompt_tokens(), 3);
  EXPECT_EQ(trace[0].output, 1);
  EXPECT_EQ(trace[0].max_tokens, 1);
  EXPECT_EQ(trace[0].tenant, "a");
  EXPECT_DOUBLE_EQ(trace[1].arrival_seconds, 2.5);
  EXPECT_EQ(trace[1].prompt_tokens(), 100);
  EXPECT_EQ(trace[1].max_tokens, 20);
  EXPECT_EQ(trace[1].tenant, "b");
  EXPECT_EQ(trace[1].priority, -2);
  EXPECT_TRUE(trace[1].background);
}

TEST(TraceFile, AzureRowsHaveDates) {
  const auto trace = parsed(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-12-31 23:59:59.5000000,4808,10\n"
      "2024-01-01 00:00:01.2500000,3180,8\n"
      "2024-02-29T01:00:00.25+01:00,110,27\n");
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_NEAR(trace[1].arrival_seconds, 1.75, 1e-6);
  EXPECT_NEAR(trace[2].arrival_seconds, 59 * 86400.0 + 0.75, 1e-6);
  EXPECT_EQ(trace[0].prompt_tokens(), 4808);
  EXPECT_EQ(trace[2].output, 27);
}

TEST(TraceFile, MooncakeRowsShareTheirHashes) {
  const auto trace = parsed(
      R"({"timestamp": 1000, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 48]})"
      "\n"
      R"({"timestamp": 3500, "input_length": 1500, "output_length": 1, "hash_ids": [46, 47, 9]})"
      "\n");
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_DOUBLE_EQ(trace[1].arrival_seconds, 2.5);
  const auto first = prompt_of(trace[0], 30000), second = prompt_of(trace[1], 30000);
  ASSERT_EQ(first.size(), 1030u);
  ASSERT_EQ(second.size(), 1500u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 1024, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 1024, first.end(), second.begin() + 1024));
}

TEST(TraceFile, TurnsOfASessionBeginAlike) {
  const auto trace = parsed(
      "arrival,input,output,session\n"
      "0,20,5,one\n1,50,5,one\n2,50,5,two\n3,50,5,\n");
  const auto prompt = [&](size_t i) { return prompt_of(trace[i], 30000); };
  const auto shorter = prompt(0), longer = prompt(1);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  EXPECT_NE(prompt(1), prompt(2));
  EXPECT_NE(prompt(2), prompt(3));
}

TEST(TraceFile, ErrorsNameLineFieldAndRemedy) {
  const std::string header = "arrival,input,output,hashes,session,max_tokens,background\n";
  const auto row_refused = [&](std::string_view row) {
    return refusal(header + "0,1,1,,,,\n" + std::string(row));
  };
  const auto expect_names = [](const std::string& message, std::string_view field) {
    EXPECT_NE(message.find("t.csv, line 3: "), message.npos) << message;
    EXPECT_NE(message.find(field), message.npos) << message;
    EXPECT_NE(message.find("; "), message.npos) << message;  // what to do
  };
  expect_names(row_refused("-1,1,1,,,,"), "arrival is \"-1\"");
  expect_names(row_refused("nan,1,1,,,,"), "arrival is \"nan\"");
  expect_names(row_refused("inf,1,1,,,,"), "arrival is \"inf\"");
  expect_names(row_refused("1,0,1,,,,"), "input is \"0\"");
  expect_names(row_refused("1,99999999999999999999,1,,,,"), "input is \"9999");
  expect_names(row_refused("1,1,1.5,,,,"), "output is \"1.5\"");
  expect_names(row_refused("1,1,,,,,"), "output is \"\"");
  expect_names(row_refused("1,600,1,7 x,,,"), "hashes is \"7 x\"");
  expect_names(row_refused("1,512,1,7 8,,,"), "hashes are 2 for 512 input tokens");
  expect_names(row_refused("1,512,1,7,s,,"), "hashes and session");
  expect_names(row_refused("1,1,9,,,8,"), "max_tokens is 8");
  expect_names(row_refused("1,1,9,,,,maybe"), "background is \"maybe\"");
  expect_names(row_refused("1,1"), "2 fields, but the header has 7");
}

TEST(TraceFile, HeadersNeedArrivalAndLengths) {
  const auto expect_names = [](std::string_view text, std::string_view what) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find(what), message.npos) << message;
  };
  expect_names("", "t.csv: no rows");
  expect_names("\n  \n", "t.csv: no rows");
  expect_names("arrival,input,output\n", "t.csv: no rows");
  expect_names("1,2,3\n", "line 1: the header has no arrival");
  expect_names("arrival,input\n1,2\n", "line 1: the header has no output");
  expect_names("arrival,input,output,input\n1,2,3,4\n", "has input twice");
  expect_names("arrival,timestamp,input,output\n1,2,3,4\n", "more than one moment of arrival");
  expect_names("{\"timestamp\": 1, \"output_length\": 3}\n", "line 1: the row has no input");
  expect_names("{\"timestamp\": 1,\n", "line 1: ");
  expect_names("{\"timestamp\": \"x\", \"input\": 1, \"output\": 1}\n", "timestamp is \"x\"");
}

TEST(TraceFile, DatesThatAreNoneAreRefused) {
  for (const char* date :
       {"2023-13-01 00:00:00", "2023-01-32 00:00:00", "2023-01-01 24:00:00", "2023-01-01 00:60:00",
        "2023-01-01 00:00:99", "2023-01-01", "0", "2023-01-01 00:00:00+1",
        "2023-01-01 00:00:00+99:00", "2023/01/01 00:00:00"}) {
    const std::string message = refusal("TIMESTAMP,input,output\n" + std::string(date) + ",1,1\n");
    EXPECT_NE(message.find("TIMESTAMP is \""), message.npos) << message;
  }
}

// Whatever the bytes, the reader ends with a trace in order or with one line that names the file.
TEST(TraceFile, BytesThatAreNoTraceAreRefused) {
  const std::string good =
      "arrival,input,output,hashes,session,max_tokens,tenant,priority,background\n"
      "0.5,1030,4,1 2 3,,9,a,3,0\n1,7,4,,s,,b,-3,true\n";
  Rng rng(7);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (uint64_t i = rng.between(1, 4); i > 0; --i) {
      const size_t at = rng.below(text.size());
      switch (rng.below(4)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, rng.below(9));
          break;
        case 2:
          text.insert(at, 1, ",\n\"0-{e \xff"[rng.below(9)]);
          break;
        default:
          text.insert(at, text.substr(rng.below(text.size()), 12));
          break;
      }
      if (text.empty()) text = "x";
    }
    const auto trace = parse_trace(text, "t.csv");
    if (!trace.ok()) {
      EXPECT_EQ(trace.status().message().find("t.csv"), 0u);
      EXPECT_EQ(trace.status().message().find('\n'), std::string::npos);
      continue;
    }
    ++accepted;
    double last = 0;
    for (const TraceRequest& request : *trace) {
      EXPECT_GE(request.arrival_seconds, last);
      last = request.arrival_seconds;
      EXPECT_GT(request.prompt_tokens(), 0);
      EXPECT_LE(request.output, request.max_tokens);
    }
  }
  EXPECT_GT(accepted, 100);
}

class TraceOfAFile : public ::testing::Test {
 protected:
  TraceOptions options_of(const std::string& rows) {
    path_ = ::testing::TempDir() + "/trace_of_a_file.csv";
    std::ofstream(path_) << "arrival,input,output\n" << rows;
    return {.kind = path_, .max_model_len = 256};
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(TraceOfAFile, KeepsItsTimesUnlessARateIsAsked) {
  TraceOptions options = options_of("0,8,8\n4,8,8\n8,8,8\n20,8,8\n");
  EXPECT_EQ(open_trace(options)->back().arrival_seconds, 20);
  options.requests = 3;
  EXPECT_EQ(open_trace(options)->back().arrival_seconds, 8);
  options.rate = 6;  // three requests in half a second
  EXPECT_DOUBLE_EQ(open_trace(options)->back().arrival_seconds, 0.5);
  EXPECT_DOUBLE_EQ(open_trace(options)->at(1).arrival_seconds, 0.25);
}

TEST_F(TraceOfAFile, RequestsThatNeverFitAreRefusedCutOrDropped) {
  const TraceOptions options = options_of("0,8,8\n1,300,200\n2,8,8\n");
  const auto refused = open_trace(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("request 1 of the trace has 300 tokens of prompt and "
                                            "200 of answer"),
            std::string::npos)
      << refused.status().message();
  EXPECT_NE(refused.status().message().find("--too-long"), std::string::npos);
  const auto dropped = open_trace(options, TooLong::kDrop);
  ASSERT_EQ(dropped->size(), 2u);
  const auto cut = open_trace(options, TooLong::kCut);
  ASSERT_EQ(cut->size(), 3u);
  EXPECT_EQ(cut->at(1).prompt_tokens() + cut->at(1).max_tokens, 256);
  EXPECT_EQ(cut->at(1).output, 128);
}

TEST_F(TraceOfAFile, ANameThatIsNeitherKindNorFileIsRefusedWithTheKinds) {
  const auto trace = open_trace({.kind = "conversatoin"});
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.status().message().find("conversation, sharegpt"), std::string::npos)
      << trace.status().message();
}

}  // namespace
}  // namespace headrace::trace_file_test
