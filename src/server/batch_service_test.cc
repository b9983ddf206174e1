#include "server/batch_service.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"
#include "server/server_state.h"

namespace headrace::batch_service_test {
namespace {

namespace fs = std::filesystem;

// A folder of its own, and services on it, one after the other.
class BatchServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              fmt::format("headrace_batches_{}_{}", ::getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<BatchService> open(BatchServiceOptions options = {}) {
    options.folder = folder_;
    options.retry_seconds = 0.05;
    return std::move(BatchService::open(options).value());
  }

  static std::string lines(int count, std::string_view body = R"({"prompt":"hi"})") {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += fmt::format(
          R"({{"custom_id":"r{}","method":"POST","url":"/v1/completions","body":{}}})", i, body);
      text += '\n';
    }
    return text;
  }
  static BatchRecord create(BatchService& service, const std::string& owner,
                            const std::string& content) {
    const auto file =
        service.files().upload({.owner = owner, .filename = "in", .purpose = "batch"}, content);
    return service
        .create({.owner = owner, .endpoint = "/v1/completions", .input_file_id = file.value().id})
        .value();
  }
  static BatchRecord ended(BatchService& service, const BatchRecord& batch) {
    const auto now = [&] { return *service.find(batch.owner, batch.id); };
    EXPECT_TRUE(eventually([&] { return is_final(now().status); }, 20));
    return now();
  }
  std::vector<Json> content(BatchService& service, const std::string& file) {
    std::ifstream text(service.files().content_path(file));
    std::vector<Json> found;
    for (std::string line; std::getline(text, line);) found.push_back(parse_json(line).value());
    return found;
  }

  fs::path folder_;
};

struct RunningModel {
  explicit RunningModel(FakeEngineOptions engine = {}, std::vector<ApiKey> keys = {})
      : model(std::move(engine), "hello"), state({}, *ApiKeys::create(std::move(keys)), {}) {
    CHECK(state.set_model(model.served()).ok());
  }
  TestModel model;
  ServerState state;
};

TEST_F(BatchServiceTest, AnEmptyOrWrongFileFailsAsAWhole) {
  RunningModel running;
  const auto service = open({.requests_max = 3});
  service->start(running.state);
  const std::pair<std::string, std::string> cases[] = {
      {"\n\n", "holds no requests"}, {lines(1) + "[]\n", "line 2"}, {lines(4), "more than 3"}};
  for (const auto& [text, said] : cases) {
    const BatchRecord batch = ended(*service, create(*service, "", text));
    EXPECT_EQ(batch.status, BatchStatus::kFailed);
    EXPECT_NE(batch.error.find(said), std::string::npos) << batch.error;
    EXPECT_EQ(batch.error.find(folder_.string()), std::string::npos) << batch.error;
  }
  EXPECT_EQ(running.model.engine->submitted(), 0);
}

TEST_F(BatchServiceTest, TimeIsOverWithLinesForWhatWasNotDone) {
  RunningModel running({.running_max = 1, .step_seconds = 0.05});
  const auto service = open({.window_seconds = 2});
  service->start(running.state);
  const BatchRecord batch = ended(*service, create(*service, "", lines(100)));
  EXPECT_EQ(batch.status, BatchStatus::kExpired);
  const auto answers = content(*service, batch.output_file_id);
  const auto errors = content(*service, batch.error_file_id);
  EXPECT_GT(answers.size(), 0u);
  EXPECT_EQ(static_cast<int64_t>(answers.size()), batch.completed);
  EXPECT_EQ(answers.size() + errors.size(), 100u);
  EXPECT_EQ(at(at(errors[0], "error"), "code").as_string(), "batch_expired");
  EXPECT_TRUE(at(errors[0], "response").is_null());
}

// Stopped at any moment and opened again, until all is done: one answer each.
TEST_F(BatchServiceTest, StopsAnywhereAndGoesOn) {
  std::string id;
  {
    const auto service = open();
    id = create(*service, "", lines(60)).id;
  }
  int starts = 0;
  for (bool done = false; !done; ++starts) {
    ASSERT_LT(starts, 200);
    RunningModel running({.running_max = 4, .step_seconds = 0.001});
    const auto service = open();
    service->start(running.state);
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + 7 * starts));
    service->stop();
    done = is_final(service->find("", id)->status);
    for (const BatchRecord& batch : service->list("", "", 10).value().batches) {
      EXPECT_EQ(batch.total == 60 || batch.total == 0, true);
    }
  }
  EXPECT_GT(starts, 2);
  const auto service = open();
  const BatchRecord batch = *service->find("", id);
  EXPECT_EQ(batch.status, BatchStatus::kCompleted);
  std::set<std::string> seen;
  for (const Json& line : content(*service, batch.output_file_id)) {
    EXPECT_TRUE(seen.insert(at(line, "custom_id").as_string()).second);
  }
  EXPECT_EQ(seen.size(), 60u);
  EXPECT_TRUE(batch.error_file_id.empty());
}

// A copy of the folder, made while a batch runs, is what a crash leaves. A batch that never gets an
// answer is given up, those beside it are not.
TEST_F(BatchServiceTest, ABatchThatEndsTheProcessAgainAndAgainIsGivenUp) {
  const fs::path crashed = folder_.string() + "_crashed";
  std::string id;
  {
    const auto service = open();
    id = create(*service, "", lines(3)).id;
  }
  for (int starts = 0; starts < 3; ++starts) {
    RunningModel running;
    running.model.engine->set_paused(true);
    const auto service = open({.starts_max = 3});
    service->start(running.state);
    ASSERT_TRUE(eventually([&] { return running.model.engine->submitted() == 3; })) << starts;
    EXPECT_EQ(service->find("", id)->status, BatchStatus::kInProgress);
    fs::remove_all(crashed);
    fs::copy(folder_, crashed, fs::copy_options::recursive);
    service->stop();
    fs::remove_all(folder_);
    fs::rename(crashed, folder_);
  }
  RunningModel running;
  const auto service = open({.starts_max = 3});
  service->start(running.state);
  const BatchRecord batch = ended(*service, *service->find("", id));
  EXPECT_EQ(batch.status, BatchStatus::kFailed);
  EXPECT_NE(batch.error.find("ended 3 times"), std::string::npos) << batch.error;
  EXPECT_EQ(running.model.engine->submitted(), 0);
  const auto errors = content(*service, batch.error_file_id);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(at(at(errors[0], "error"), "code").as_string(), "batch_failed");
  EXPECT_EQ(ended(*service, create(*service, "", lines(3))).status, BatchStatus::kCompleted);
}

// Crashes between answers are no reason: each start went further.
TEST_F(BatchServiceTest, ABatchThatGetsOnIsNeverGivenUp) {
  const fs::path crashed = folder_.string() + "_crashed";
  std::string id;
  {
    const auto service = open();
    id = create(*service, "", lines(12)).id;
  }
  int starts = 0;
  for (int64_t seen = 0; seen < 8; ++starts) {
    RunningModel running({.running_max = 1, .step_seconds = 0.02});
    const auto service = open({.starts_max = 2});
    service->start(running.state);
    ASSERT_TRUE(eventually([&] { return service->find("", id)->completed > seen; }, 20));
    seen = service->find("", id)->completed;
    fs::copy(folder_, crashed, fs::copy_options::recursive);
    service->stop();
    fs::remove_all(folder_);
    fs::rename(crashed, folder_);
  }
  EXPECT_GT(starts, 2);
  RunningModel running;
  const auto service = open({.starts_max = 2});
  service->start(running.state);
  EXPECT_EQ(ended(*service, *service->find("", id)).status, BatchStatus::kCompleted);
}

// The whole of a start is tried: an exception is neither the process's end nor for ever.
TEST_F(BatchServiceTest, AnExceptionOfAJobIsCaughtAndCounted) {
  RunningModel running;
  running.model.engine->throw_when_asked_for_health(true);
  const auto service = open({.starts_max = 2});
  service->start(running.state);
  const BatchRecord batch = ended(*service, create(*service, "", lines(2)));
  EXPECT_EQ(batch.status, BatchStatus::kFailed);
  running.model.engine->throw_when_asked_for_health(false);
  EXPECT_EQ(ended(*service, create(*service, "", lines(2))).status, BatchStatus::kCompleted);
}

TEST_F(BatchServiceTest, ATaskOfTheDiskThatThrowsEndsNothing) {
  const auto service = open();
  std::atomic<bool> ran{false};
  ASSERT_TRUE(service->run_on_disk([] { throw std::bad_alloc(); }));
  ASSERT_TRUE(service->run_on_disk([&] { ran = true; }));
  EXPECT_TRUE(eventually([&] { return ran.load(); }));
}

TEST_F(BatchServiceTest, OwnersTakeTurns) {
  RunningModel running({.running_max = 1, .step_seconds = 0.001}, {"one", "two"});
  const std::string one = running.state.keys.name(0), two = running.state.keys.name(1);
  const auto service = open({.jobs_at_once = 1});
  std::vector<BatchRecord> flood;
  const std::string flood_lines = lines(20, R"({"prompt":"hi","max_tokens":100})");  // 2 s of steps
  for (int i = 0; i < 8; ++i) flood.push_back(create(*service, one, flood_lines));
  const BatchRecord single = create(*service, two, lines(1));
  const auto other = open({.jobs_at_once = 2});  // reads the same folder; never started
  EXPECT_EQ(other->counts().batches[0], 9u);
  service->stop();
  const auto pair = open({.jobs_at_once = 2});
  pair->start(running.state);
  ended(*pair, single);
  EXPECT_FALSE(is_final(pair->find(one, flood.back().id)->status));
}

TEST_F(BatchServiceTest, AKeyThatIsGoneRunsNothing) {
  RunningModel running({}, {"one"});
  const auto service = open();
  const BatchRecord batch = create(*service, "nobody", lines(1));
  service->start(running.state);
  ended(*service, create(*service, running.state.keys.name(0), lines(1)));
  EXPECT_EQ(service->find("nobody", batch.id)->status, BatchStatus::kValidating);
  ASSERT_TRUE(service->cancel("nobody", batch.id).ok());
  EXPECT_EQ(ended(*service, batch).status, BatchStatus::kCancelled);
}

TEST_F(BatchServiceTest, BoundsOnBatches) {
  RunningModel running;
  const auto service = open({.open_max = 2});
  create(*service, "", lines(1));
  create(*service, "", lines(1));
  const auto file =
      service->files().upload({.filename = "in", .purpose = "batch"}, lines(1)).value();
  EXPECT_EQ(
      service->create({.endpoint = "/v1/completions", .input_file_id = file.id}).status().code(),
      StatusCode::kExhausted);
  service->start(running.state);
  EXPECT_TRUE(eventually([&] { return service->counts().batches[4] == 2; }));
  EXPECT_TRUE(service->create({.endpoint = "/v1/completions", .input_file_id = file.id}).ok());
}

TEST_F(BatchServiceTest, TheOldestThatEndedAreForgotten) {
  RunningModel running;
  const auto service = open({.kept_max = 3});
  service->start(running.state);
  for (int i = 0; i < 6; ++i) ended(*service, create(*service, "", lines(1)));
  EXPECT_LE(service->list("", "", 100).value().batches.size(), 3u);
}

TEST_F(BatchServiceTest, WhatACrashLeavesIsPutAway) {
  StoredFile file;
  {
    const auto service = open();
    file = service->files().upload({.filename = "in", .purpose = "batch"}, "text").value();
  }
  const auto put = [&](const std::string& name) { std::ofstream(folder_ / name) << "{}"; };
  for (const char* name : {"files/file-x.data", "files/file-y.json", "files/file-z.data.tmp",
                           "batches/batch_x.json", "batches/batch_y.json.tmp"}) {
    put(name);
  }
  const auto service = open();
  EXPECT_EQ(service->files().file_count(), 1u);
  EXPECT_EQ(service->files().find("", file.id)->bytes, 4);
  EXPECT_EQ(service->counts().batches[0], 0u);
  EXPECT_FALSE(fs::exists(folder_ / "files/file-x.data"));
  EXPECT_FALSE(fs::exists(folder_ / "files/file-z.data.tmp"));
  EXPECT_FALSE(fs::exists(folder_ / "batches/batch_y.json.tmp"));
}

TEST_F(BatchServiceTest, FilesExpire) {
  const auto service = open();
  const auto file = service->files()
                        .upload({.filename = "in", .purpose = "batch", .expires_unix_s = 5}, "text")
                        .value();
  EXPECT_TRUE(eventually([&] { return !fs::exists(service->files().content_path(file.id)); }));
  EXPECT_FALSE(service->files().find("", file.id));
  EXPECT_EQ(service->files().bytes_total(), 0);
}

TEST_F(BatchServiceTest, RecordsComeBackAsTheyWere) {
  BatchRecord record{.id = "batch_1", .owner = "o", .endpoint = "/v1/completions"};
  record.input_file_id = "file-1";
  record.error = "line 3: \"x\"";
  record.total = 5;
  record.expires_at = 77;
  record.metadata = Json::object().set("a", "b");
  record.end = BatchStatus::kExpired;
  record.become(BatchStatus::kFinalizing, 66);
  const auto read = read_batch_record(write_batch_record(record));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(write_batch_record(*read), write_batch_record(record));
  EXPECT_EQ(read->finalizing_at, 66);
  EXPECT_FALSE(read_batch_record("{}").ok());
}

// What cannot be named by a card takes no room on the disk.
TEST_F(BatchServiceTest, WhatIsNotAdoptedLeavesNothing) {
  fs::create_directories(folder_);
  const auto files = std::move(FileStore::open(folder_ / "files", {}).value());
  const StoredFile file{.id = "file-1", .owner = "o", .filename = "f", .purpose = "batch_output"};
  const fs::path made = folder_ / "made";
  std::ofstream(made) << "text";
  const fs::path card = folder_ / "files" / "file-1.json";
  fs::create_directories(card / "in the way");
  EXPECT_FALSE(files->adopt(file, made).ok());
  EXPECT_FALSE(fs::exists(files->content_path("file-1")));
  fs::remove_all(card);
  std::ofstream(made) << "text";
  EXPECT_TRUE(files->adopt(file, made).ok());
  EXPECT_TRUE(fs::exists(files->content_path("file-1")));
}

// A download says how long it is: one that breaks off does not look whole, and HEAD reads nothing.
TEST_F(BatchServiceTest, DownloadsSayTheirLength) {
  ServerOptions options;
  options.batches.folder = folder_;
  ServerFixture f({}, "x", options);
  const std::string text(100'000, 'a');
  const std::string form =
      "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\n"
      "Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n" +
      text + "\r\n--B--\r\n";
  TestClient uploads(f.server->port());
  uploads.send(
      fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; "
                  "boundary=B\r\nContent-Length: {}\r\n\r\n{}",
                  form.size(), form));
  const auto stored = uploads.read_response();
  ASSERT_TRUE(stored && stored->status == 200);
  const std::string id = at(stored->json(), "id").as_string();
  const std::string path = fmt::format("/v1/files/{}/content", id);
  const TestResponse whole = f.get(path);
  EXPECT_EQ(whole.headers.at("content-length"), "100000");
  EXPECT_EQ(whole.body, text);
  TestClient head(f.server->port());
  head.send(fmt::format("HEAD {} HTTP/1.1\r\nHost: x\r\n\r\n", path));
  std::string answer;
  while (!answer.ends_with("\r\n\r\n") && answer.size() < 4096) answer += head.receive(1);
  EXPECT_NE(answer.find("\r\nContent-Length: 100000\r\n"), answer.npos) << answer;
  EXPECT_EQ(head.get("/health")->body, R"({"status":"ok"})");
  fs::resize_file(folder_ / "files" / (id + ".data"), 70'000);
  EXPECT_FALSE(TestClient(f.server->port()).get(path));  // the connection ends before the body
}

TEST(Uploads, LargeBodiesNeedARouteAKeyAndAFolder) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("headrace_up_{}", ::getpid());
  ServerOptions options;
  options.api_keys = {"right"};
  options.batches.folder = folder;
  ServerFixture with({}, "x", options), without;
  const auto announce = [](ServerFixture& f, std::string_view path, std::string_view key) {
    TestClient client(f.server->port());
    client.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n"
                    "Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n",
                    path, key));
    const std::string line = client.receive(12);
    return line.size() == 12 ? line.substr(9) : line;
  };
  EXPECT_EQ(announce(with, "/v1/files", "right"), "100");
  EXPECT_EQ(announce(with, "/v1/files", "wrong"), "401");
  EXPECT_EQ(announce(with, "/v1/completions", "right"), "413");
  EXPECT_EQ(announce(without, "/v1/files", "right"), "413");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace headrace::batch_service_test
