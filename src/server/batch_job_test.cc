#include "server/batch_job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/durable_file.h"
#include "server/memory_fixture.h"
#include "server/model_fixture.h"

namespace headrace::batch_job_test {
namespace {

namespace fs = std::filesystem;

// A folder of its own, and the job's two files in it.
class BatchJobTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              fmt::format("headrace_batch_{}_{}", ::getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string input() const { return folder_ / "in.jsonl"; }
  std::string output() const { return folder_ / "out.jsonl"; }

  void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::string line(std::string_view id, std::string_view body = R"({"prompt":"hi"})",
                          std::string_view url = "/v1/completions") {
    return fmt::format(R"({{"custom_id":"{}","method":"POST","url":"{}","body":{}}})", id, url,
                       body) +
           "\n";
  }
  std::string lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += line(fmt::format("r{}", i));
    return text;
  }

  // One run of the job on a fresh state; stops after `stop_after` answers.
  Result<BatchProgress> run(FakeEngineOptions engine = {}, size_t stop_after = SIZE_MAX,
                            std::string_view script = "hello") {
    TestModel model(std::move(engine), script);
    ServerState state({}, *ApiKeys::create({}), {});
    CHECK(state.set_model(model.served()).ok());
    HR_ASSIGN_OR_RETURN(const auto requests, BatchRequests::open(input(), {}));
    HR_ASSIGN_OR_RETURN(auto journal, BatchJournal::open(output(), requests));
    std::atomic<bool> stop{false};
    return run_batch(state, requests, journal, {}, stop, [&](const BatchProgress& progress) {
      if (progress.answered >= stop_after) stop = true;
    });
  }

  // custom_id -> the answer's line, each once.
  std::map<std::string, Json> answers() {
    std::map<std::string, Json> found;
    std::string text = read(output());
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    for (size_t first = 0; first < text.size();) {
      const size_t end = text.find('\n', first);
      const Json json = parse_json(std::string_view(text).substr(first, end - first)).value();
      const std::string id = json.find("custom_id")->as_string();
      EXPECT_TRUE(found.emplace(id, json).second) << id << " is answered twice";
      first = end + 1;
    }
    return found;
  }

  fs::path folder_;
};

TEST_F(BatchJobTest, EveryRequestHasOneAnswer) {
  write(input(),
        line("a") + "\n" +
            line("b", R"({"messages":[{"role":"user","content":"x"}]})", "/v1/chat/completions") +
            line("c", R"({"prompt":"hi","temperature":-1})"));
  const auto progress = run();
  ASSERT_TRUE(progress.ok()) << progress.status().message();
  EXPECT_EQ(progress->answered, 3u);
  EXPECT_EQ(progress->refused, 1u);
  const auto found = answers();
  ASSERT_EQ(found.size(), 3u);
  const Json& a = *found.at("a").find("response");
  EXPECT_EQ(a.find("status_code")->as_int(), 200);
  EXPECT_EQ(a.find("body")->find("choices")->as_array()[0].find("text")->as_string(), "hello");
  const Json& b = *found.at("b").find("response")->find("body");
  EXPECT_EQ(b.find("choices")->as_array()[0].find("message")->find("content")->as_string(),
            "hello");
  const Json& c = *found.at("c").find("response");
  EXPECT_EQ(c.find("status_code")->as_int(), 400);
  EXPECT_EQ(c.find("body")->find("error")->find("param")->as_string(), "temperature");
  EXPECT_TRUE(found.at("c").find("error")->is_null());
}

TEST_F(BatchJobTest, AStoppedJobGoesOnWhereItWas) {
  write(input(), lines(40));
  for (size_t runs = 0; runs < 4; ++runs) {
    const auto progress = run({.running_max = 3, .step_seconds = 0.0005}, 7);
    ASSERT_TRUE(progress.ok());
    EXPECT_EQ(progress->done_before + progress->answered, answers().size());
  }
  ASSERT_TRUE(run().ok());
  EXPECT_EQ(answers().size(), 40u);
  const auto again = run();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->done_before, 40u);
  EXPECT_EQ(again->answered, 0u);
}

TEST_F(BatchJobTest, ALineCutByAKillIsDoneAgain) {
  write(input(), lines(5));
  ASSERT_TRUE(run().ok());
  const std::string whole = read(output());
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t cut = last; cut < whole.size(); ++cut) {
    write(output(), whole.substr(0, cut));
    ASSERT_TRUE(run().ok()) << cut;
    ASSERT_EQ(answers().size(), 5u) << cut;
  }
}

TEST_F(BatchJobTest, AFullQueueIsNoAnswer) {
  write(input(), lines(50));
  const auto progress = run({.running_max = 1, .queued_max = 2});
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->answered, 50u);
  EXPECT_EQ(progress->refused, 0u);
}

TEST_F(BatchJobTest, AFaultIsNoAnswerYet) {
  write(input(), lines(3));
  TestModel model({}, "hello");
  ServerState state({}, *ApiKeys::create({}), {});
  ASSERT_TRUE(state.set_model(model.served()).ok());
  const auto requests = BatchRequests::open(input(), {});
  auto journal = BatchJournal::open(output(), *requests);
  ASSERT_TRUE(requests.ok() && journal.ok());
  model.engine->fail_next_emission();  // NaN, of a machine that is well again behind it
  const std::atomic<bool> stop{false};
  const auto progress = run_batch(state, *requests, *journal, {}, stop, [](const auto&) {});
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->answered, 3u);
  EXPECT_EQ(progress->refused, 0u);
  EXPECT_EQ(answers().size(), 3u);
}

TEST_F(BatchJobTest, BadRequestsAreNamedBeforeAnythingRuns) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "holds no requests"},
      {line("a") + "{\n", "line 2: "},
      {line("a") + "[]\n", "line 2: must be a JSON object"},
      {line("a") + line("a"), "line 2: custom_id is the same"},
      {line(""), "line 1: custom_id must have"},
      {line("a", "[]"), "line 1: body must be an object"},
      {line("a", R"({"stream":true})"), "line 1: body.stream"},
      {line("a", "{}", "/v1/rerank"), "line 1: url must be one of"},
      {R"({"custom_id":"a","url":"/v1/completions","body":{}})", "line 1: method is missing"},
  };
  for (const auto& [text, said] : cases) {
    write(input(), text);
    const auto progress = run();
    ASSERT_FALSE(progress.ok()) << text;
    EXPECT_NE(progress.status().message().find(said), std::string::npos)
        << progress.status().message();
    EXPECT_FALSE(fs::exists(output()));
  }
}

// A line of any length is streamed past and refused. 200 MiB are what an upload may have; parsed as
// JSON they took near 10 GB.
TEST_F(BatchJobTest, ALineThatIsTooLongCostsNoMemory) {
  {
    std::ofstream file(input(), std::ios::binary);
    file << line("a")
         << R"({"custom_id":"b","method":"POST","url":"/v1/completions","body":{"prompt":[0)";
    std::string zeros;
    while (zeros.size() < (1 << 20)) zeros += ",0";
    for (int i = 0; i < 200; ++i) file << zeros;
    file << "]}}\n";
  }
  std::string said;
  const size_t grown =
      resident_growth([&] { said = BatchRequests::open(input(), {}).status().message(); });
  EXPECT_NE(said.find("line 2: has more than 8388608 bytes"), std::string::npos) << said;
  if (kMemoryIsTold) {
    EXPECT_LT(grown, size_t{2} << 20);
  }
  fmt::print("200 MiB in a line: {} KiB\n", grown >> 10);
}

// What was read is let go, also of many short lines.
TEST_F(BatchJobTest, AFileOfRequestsIsNotKeptInMemory) {
  {
    std::ofstream file(input(), std::ios::binary);
    const std::string prompt = R"({"prompt":")" + std::string(2000, 'x') + R"("})";
    for (int i = 0; i < 20'000; ++i) file << line(fmt::format("r{}", i), prompt);
  }
  size_t count = 0;
  const size_t grown =
      resident_growth([&] { count = BatchRequests::open(input(), {}).value().size(); });
  EXPECT_EQ(count, 20'000u);
  if (kMemoryIsTold) {
    EXPECT_LT(grown, fs::file_size(input()) / 2);  // ids and places are kept
  }
  fmt::print("20,000 lines of 2 KB: {} KiB\n", grown >> 10);
}

TEST_F(BatchJobTest, ElementsOfALineAreCounted) {
  std::string zeros = "0";
  for (int i = 0; i < 2000; ++i) zeros += ",0";
  write(input(), line("a", "{\"prompt\":[" + zeros + "]}"));
  EXPECT_TRUE(BatchRequests::open(input(), {}).ok());
  const BatchRules rules{.json = {.element_count_max = 1000}};
  const Status refused = BatchRequests::open(input(), rules).status();
  EXPECT_NE(refused.message().find("line 1: more than 1000 elements"), std::string::npos)
      << refused.message();
}

TEST_F(BatchJobTest, AnotherFileIsNotWrittenOver) {
  write(input(), lines(3));
  const std::string texts[] = {"my notes", "my notes\n", "{}\n",
                               R"({"custom_id":"other"})"
                               "\n",
                               R"({"custom_id":"r1"})"
                               "\n"
                               R"({"custom_id":"r1"})"
                               "\n"};
  for (const std::string& text : texts) {
    write(output(), text);
    const auto progress = run();
    ASSERT_FALSE(progress.ok()) << text;
    EXPECT_NE(progress.status().message().find("name another file"), std::string::npos);
    EXPECT_EQ(read(output()), text);
  }
}

// Answers of users are nobody else's, and a link in the place of their file leads nowhere.
TEST_F(BatchJobTest, AnswersAreTheirOwnersAlone) {
  write(input(), lines(3));
  const mode_t old_mask = ::umask(0);
  ASSERT_TRUE(run().ok());
  ::umask(old_mask);
  EXPECT_EQ(fs::status(output()).permissions(), fs::perms(0600));
  const std::string elsewhere = folder_ / "elsewhere";
  fs::rename(output(), elsewhere);
  fs::create_symlink(elsewhere, output());
  const auto progress = run();
  ASSERT_FALSE(progress.ok());
  EXPECT_NE(progress.status().message().find("symbolic link"), std::string::npos)
      << progress.status().message();
}

TEST_F(BatchJobTest, FoldersAreTheirOwnersAlone) {
  const std::string folder = folder_ / "a/b/c";
  const mode_t old_mask = ::umask(0);
  ASSERT_TRUE(make_folder(folder).ok());
  ::umask(old_mask);
  for (const char* made : {"a", "a/b", "a/b/c"}) {
    EXPECT_EQ(fs::status(folder_ / made).permissions(), fs::perms(0700)) << made;
  }
  EXPECT_TRUE(make_folder(folder + "/").ok());
  write(input(), "");
  EXPECT_NE(make_folder(input()).message().find("is no folder"), std::string::npos);
  EXPECT_NE(make_folder("/proc/none/x").message().find("cannot be made"), std::string::npos);
}

TEST_F(BatchJobTest, OneWriterAtATime) {
  write(input(), lines(3));
  const auto requests = BatchRequests::open(input(), {});
  ASSERT_TRUE(requests.ok());
  const auto first = BatchJournal::open(output(), *requests);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(run().status().code(), StatusCode::kUnavailable);
}

// What the model cannot answer is no answer of the job: with another model it may run.
TEST_F(BatchJobTest, TheFirstRequestThatTheModelDoesNotServeIsNamed) {
  TestModel model({}, "hello");
  ServerState state({}, *ApiKeys::create({}), {});
  ASSERT_TRUE(state.set_model(model.served()).ok());
  write(input(), line("a") + line("b", R"({"input":"x"})", "/v1/embeddings"));
  const auto requests = BatchRequests::open(input(), {});
  ASSERT_TRUE(requests.ok());
  EXPECT_EQ((*requests)[0].url, "/v1/completions");
  EXPECT_EQ((*requests)[1].url, "/v1/embeddings");
  EXPECT_EQ(check_batch_urls(*state.model(), *requests).message(),
            "custom_id b: /v1/embeddings: the model makes texts, no vectors (with --embedding it "
            "does)");
  EXPECT_TRUE(check_batch_url(*state.model(), "/v1/responses").ok());
}

}  // namespace
}  // namespace headrace::batch_job_test
