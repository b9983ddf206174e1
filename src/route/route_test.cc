// Facts of requests, policies, the table, attempts, answers: what the router decides.
#include <gtest/gtest.h>

#include <set>

#include "route/answer_tokens.h"
#include "route/model_aliases.h"
#include "route/prefix_index.h"
#include "route/request_attempts.h"
#include "route/request_facts.h"
#include "route/route_policy.h"
#include "route/worker_answer.h"
#include "route/worker_table.h"
#include "route/worker_watch.h"

namespace headrace::route_test {
namespace {

HttpRequest post(std::string path, std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.path = std::move(path);
  request.body = std::move(body);
  return request;
}

HttpTarget target(int i) {
  return {.tls = false, .host = "10.0.0." + std::to_string(i), .port = "8000", .path = "/"};
}

TEST(RequestFacts, AChatsTextIsHashedFromToolsToTheLastMessage) {
  const std::string words(1000, 'a');
  const auto chat = [&](const std::string& end) {
    return RequestFacts(
        post("/v1/chat/completions", R"({"model":"m","stream": true,"max_tokens":7,"messages":[")" +
                                         words + end + R"("],"tools":["t"],"user":"u"})"));
  };
  const RequestFacts one = chat("x"), two = chat(std::string(600, 'y'));
  EXPECT_EQ(one.kind, RouteKind::kCompute);
  EXPECT_TRUE(one.streams);
  EXPECT_EQ(one.model, "m");
  EXPECT_EQ(one.session, "u");
  EXPECT_EQ(one.output_tokens, 7);
  ASSERT_EQ(one.blocks.size(), 3u);
  ASSERT_EQ(two.blocks.size(), 6u);
  EXPECT_TRUE(std::equal(one.blocks.begin(), one.blocks.end(), two.blocks.begin()));
  const RequestFacts other(post("/v1/chat/completions",
                                R"({"model":"n","messages":[")" + words + R"(x"],"tools":["t"]})"));
  EXPECT_NE(other.blocks.front(), one.blocks.front());  // another model's cache
}

TEST(RequestFacts, RoutesSayWhereTheyMayGo) {
  const auto kind = [](std::string method, std::string path) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    return RequestFacts(request);
  };
  EXPECT_TRUE(RequestFacts(post("/api/chat", "{}")).streams);
  EXPECT_FALSE(RequestFacts(post("/api/chat", R"({"stream": false})")).streams);
  EXPECT_FALSE(RequestFacts(post("/v1/embeddings", R"({"stream": true})")).streams);
  EXPECT_EQ(kind("GET", "/v1/responses/resp_1").owned_id, "resp_1");
  EXPECT_EQ(kind("POST", "/v1/batches/batch_1/cancel").owned_id, "batch_1");
  EXPECT_EQ(kind("POST", "/v1/files").kind, RouteKind::kHome);
  EXPECT_EQ(kind("POST", "/flush_cache").kind, RouteKind::kEveryone);
  EXPECT_EQ(kind("GET", "/props").kind, RouteKind::kAnyWorker);
  EXPECT_EQ(RequestFacts(post("/v1/responses", R"({"previous_response_id":"resp_2"})")).owned_id,
            "resp_2");
  EXPECT_FALSE(kind("POST", "/v1/files").may_be_repeated());
}

TEST(RequestFacts, AnEmptyIdHidesNone) {
  const auto owned = [](std::string body) {
    const RequestFacts facts(post("/v1/responses", std::move(body)));
    return facts.kind == RouteKind::kOwned ? facts.owned_id : "";
  };
  EXPECT_EQ(owned(R"({"previous_response_id":"resp_1","input_file_id":""})"), "resp_1");
  EXPECT_EQ(owned(R"({"input_file_id":null,"previous_response_id":"resp_1"})"), "resp_1");
  EXPECT_EQ(owned(R"({"previous_response_id":""})"), "");
}

TEST(RequestFacts, LengthsOfEveryProtocolAreNamed) {
  const auto named = [](std::string path, std::string body) {
    return RequestFacts(post(std::move(path), std::move(body))).named_tokens;
  };
  EXPECT_EQ(named("/v1/completions", R"({"max_tokens":7})"), 7);
  EXPECT_EQ(named("/v1/completions", R"({"n":3,"max_tokens":7})"), 21);
  EXPECT_EQ(named("/v1/completions", R"({"max_tokens":null})"), 0);
  EXPECT_EQ(named("/completion", R"({"n_predict":7})"), 7);
  EXPECT_EQ(named("/completion", R"({"n_predict":-1})"), 0);  // no bound
  EXPECT_EQ(named("/api/chat", R"({"options":{"num_predict":7}})"), 7);
  EXPECT_EQ(named("/generate", R"({"sampling_params":{"max_new_tokens":7}})"), 7);
  EXPECT_EQ(named("/generate_stream", R"({"parameters":{"max_new_tokens":7}})"), 7);
  EXPECT_EQ(
      named("/v1/completions", R"({"n":9223372036854775807,"max_tokens":9223372036854775807})"),
      int64_t{1} << 56);
}

TEST(RequestFacts, WhatComputesOnAModelCounts) {
  for (const char* path : {"/v1/chat/completions", "/v1/embeddings", "/rerank", "/api/generate"}) {
    EXPECT_TRUE(RequestFacts(post(path, "{}")).computes) << path;
  }
  EXPECT_TRUE(RequestFacts(post("/v1/responses", R"({"previous_response_id":"resp_1"})")).computes);
  for (const char* path : {"/tokenize", "/v1/messages/count_tokens", "/apply-template", "/v1/files",
                           "/v1/batches", "/v1/responses/resp_1/cancel", "/version"}) {
    EXPECT_FALSE(RequestFacts(post(path, "{}")).computes) << path;
  }
}

TEST(RequestFacts, AResponseSaysThatNobodyWaits) {
  const auto background = [](std::string body, std::string path = "/v1/responses") {
    return RequestFacts(post(std::move(path), std::move(body))).background;
  };
  EXPECT_TRUE(background(R"({"background": true})"));
  EXPECT_FALSE(background(R"({"background": false})"));
  EXPECT_FALSE(background(R"({"background": null})"));
  EXPECT_FALSE(background("{}"));
  EXPECT_FALSE(background(R"({"background": true})", "/v1/chat/completions"));
}

TEST(RequestFacts, AnswersTellTheIdsOfWhatIsKept) {
  EXPECT_EQ(ids_kept_by_worker(R"({"id":"resp_1","object":"response"})"),
            std::vector<std::string>{"resp_1"});
  EXPECT_EQ(ids_kept_by_worker(R"({"type":"response.created","response":{"id":"resp_3"}})"),
            std::vector<std::string>{"resp_3"});
  EXPECT_EQ(ids_kept_by_worker(R"({"id":"batch_1","output_file_id":"file-2"})").size(), 2u);
  EXPECT_TRUE(ids_kept_by_worker(R"({"id":"chatcmpl-1"})").empty());
}

TEST(PrefixIndex, HoldsTheMostRecentAndNeverABlockWithoutThoseBefore) {
  PrefixIndex index(6);
  const std::vector<uint64_t> a = {1, 2, 3}, b = {1, 2, 30}, c = {7, 8, 9};
  index.insert(a);
  index.insert(b);
  EXPECT_EQ(index.size(), 4u);
  index.insert(c);  // 3 is the least recent: it goes
  EXPECT_EQ(index.size(), 6u);
  EXPECT_EQ(index.match(a), 2u);
  EXPECT_EQ(index.match(b), 3u);
  EXPECT_EQ(index.match(c), 3u);
  index.resize(3);
  EXPECT_EQ(index.match(b), 0u);
  EXPECT_EQ(index.match(c), 3u);
  const std::vector<uint64_t> longer = {7, 8, 9, 10, 11};
  index.insert(longer);  // as much of it as there is room for
  EXPECT_EQ(index.match(longer), 3u);
}

TEST(RoutePolicy, PrefixAwareStaysWhereThePrefixIsUntilThatIsCrowded) {
  const auto policy = make_route_policy(RoutePolicyKind::kPrefixAware, {});
  RequestFacts request;
  for (uint64_t i = 0; i < 20; ++i) request.blocks.push_back(i + 100);
  PrefixIndex holder(1000), empty(1000);
  holder.insert(request.blocks);
  std::vector<RouteCandidate> workers(3);
  for (RouteCandidate& each : workers) each.prefixes = &empty;
  workers[1].prefixes = &holder;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(policy->pick(request, workers), 1u);
  workers[1].load_tokens = 4000;
  EXPECT_EQ(policy->pick(request, workers), 1u);
  workers[1].load_tokens = 40000;
  EXPECT_NE(policy->pick(request, workers), 1u);
}

TEST(RoutePolicy, SessionsMoveOnlyWithTheirWorker) {
  const auto policy = make_route_policy(RoutePolicyKind::kSession, {});
  std::vector<RouteCandidate> workers(4);
  for (size_t i = 0; i < 4; ++i) workers[i].identity = i + 1;
  std::set<uint64_t> used;
  for (int i = 0; i < 200; ++i) {
    RequestFacts request;
    request.session = "s" + std::to_string(i);
    const uint64_t home = workers[policy->pick(request, workers)].identity;
    used.insert(home);
    std::vector<RouteCandidate> fewer;
    for (const RouteCandidate& each : workers) {
      if (each.identity != 4) fewer.push_back(each);
    }
    const uint64_t after = fewer[policy->pick(request, fewer)].identity;
    if (home != 4) {
      EXPECT_EQ(after, home);
    }
  }
  EXPECT_EQ(used.size(), 4u);
}

TEST(RoutePolicy, LoadIsSpread) {
  for (const auto kind :
       {RoutePolicyKind::kRoundRobin, RoutePolicyKind::kLeastLoaded, RoutePolicyKind::kPowerOfTwo,
        RoutePolicyKind::kPrefixAware, RoutePolicyKind::kLeastKv}) {
    const auto policy = make_route_policy(kind, {});
    std::vector<RouteCandidate> workers(4);
    for (int i = 0; i < 400; ++i) workers[policy->pick({}, workers)].load_tokens += 100;
    for (const RouteCandidate& each : workers) {
      EXPECT_NEAR(each.load_tokens, 10000, 1200) << name_of(kRoutePolicyNames, kind);
    }
  }
}

TEST(RoutePolicy, TheEmptiestCacheIsChosenAndLoadsBreakTies) {
  const auto policy = make_route_policy(RoutePolicyKind::kLeastKv, {});
  std::vector<RouteCandidate> workers(3);
  workers[0].kv_usage = 0.5;
  workers[1].kv_usage = 0.2;
  workers[2].kv_usage = 0.9;
  workers[1].load_tokens = 1e6;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(policy->pick({}, workers), 1u);
  workers[0].kv_usage = 0.2004;  // as full, to a hundredth
  for (int i = 0; i < 6; ++i) EXPECT_EQ(policy->pick({}, workers), 0u);
}

TEST(RoutePolicy, SloAwareKeepsItsPromiseAndThenSavesWork) {
  const auto policy = make_route_policy(RoutePolicyKind::kSloAware, {.first_token_seconds = 0.5});
  RequestFacts request;
  for (uint64_t i = 0; i < 10; ++i) request.blocks.push_back(i + 100);
  request.prompt_tokens = 640;
  PrefixIndex holder(1000), empty(1000);
  holder.insert(request.blocks);
  std::vector<RouteCandidate> workers(3);
  for (RouteCandidate& each : workers) {
    each.prefixes = &empty;
    each.first_token_seconds = 1e-4;  // 64 ms for the prompt
  }
  workers[2].prefixes = &holder;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(policy->pick(request, workers), 2u);
  workers[2].load_tokens = 80000;  // a second of waiting there: the promise is kept elsewhere
  for (int i = 0; i < 6; ++i) EXPECT_NE(policy->pick(request, workers), 2u);
  workers[0].first_token_seconds = 1e-3;  // 640 ms: too slow a machine
  for (int i = 0; i < 6; ++i) EXPECT_EQ(policy->pick(request, workers), 1u);
  workers[1].load_tokens = 200000;  // nobody keeps it: the soonest, which is the slow one
  for (int i = 0; i < 6; ++i) EXPECT_EQ(policy->pick(request, workers), 0u);
}

class WorkerTableTest : public testing::Test {
 protected:
  WorkerTableTest() {
    for (int i = 0; i < 3; ++i) {
      table_.add(target(i));
      report(i, WorkerReport::Health::kReady);
    }
  }
  void report(int id, WorkerReport::Health health, int64_t requests = -1) {
    WorkerReport report;
    report.health = health;
    report.requests = requests;
    table_.report(id, report);
  }
  std::set<int> chosen(const RequestFacts& request, std::vector<int> excluded = {}) {
    std::set<int> ids;
    for (int i = 0; i < 12; ++i) {
      if (const auto lease = table_.choose(request, excluded)) ids.insert(lease->id());
    }
    return ids;
  }

  VirtualClock clock_;
  WorkerTable table_{{.policy = RoutePolicyKind::kRoundRobin}, clock_};
};

TEST_F(WorkerTableTest, OnlyThoseThatAreUpGetRequests) {
  EXPECT_EQ(chosen({}), (std::set{0, 1, 2}));
  table_.on_lost(1);
  EXPECT_EQ(chosen({}), (std::set{0, 2}));
  report(1, WorkerReport::Health::kReady);
  table_.drain(0, true);
  report(2, WorkerReport::Health::kDraining);
  EXPECT_EQ(chosen({}), (std::set{1}));
  EXPECT_TRUE(chosen({}, {1}).empty());
  table_.drain(0, false);
  EXPECT_EQ(chosen({}), (std::set{0, 1}));
  EXPECT_TRUE(table_.remove(0));
  EXPECT_FALSE(table_.remove(0));
  EXPECT_EQ(chosen({}), (std::set{1}));
  EXPECT_EQ(table_.add(target(1)), 1);
  EXPECT_EQ(table_.add(target(0)), 3);  // ids are not used again
}

TEST_F(WorkerTableTest, ABreakerOpensAfterErrorsInARowAndClosesWithTime) {
  for (int i = 0; i < WorkerHealth::kErrorsMax; ++i) table_.on_answer(0, 500);
  EXPECT_EQ(chosen({}), (std::set{1, 2}));
  clock_.advance_ns(1'100'000'000);
  EXPECT_EQ(chosen({}), (std::set{0, 1, 2}));
  table_.on_answer(0, 500);  // still: twice as long
  clock_.advance_ns(1'100'000'000);
  EXPECT_EQ(chosen({}), (std::set{1, 2}));
  clock_.advance_ns(1'000'000'000);
  table_.on_answer(0, 200);
  EXPECT_EQ(chosen({}), (std::set{0, 1, 2}));
}

TEST_F(WorkerTableTest, WhoHasLeftLatelyMayComeBack) {
  for (int i = 0; i < 3; ++i) report(i, WorkerReport::Health::kReady);
  EXPECT_FALSE(table_.anybody_away());
  EXPECT_TRUE(table_.remove(1));
  EXPECT_TRUE(table_.anybody_away());
  const int again = table_.add(target(1));
  report(again, WorkerReport::Health::kReady);
  EXPECT_FALSE(table_.anybody_away());
  table_.remove(again);
  clock_.advance_ns(61'000'000'000);
  EXPECT_FALSE(table_.anybody_away());
  table_.drain(0, true);
  EXPECT_TRUE(table_.anybody_away());
}

TEST_F(WorkerTableTest, ATableThatHasJustBegunDoesNotKnowWhoIsAway) {
  WorkerTable table({.members_are_looked_up = true}, clock_);
  WorkerReport ready;
  ready.health = WorkerReport::Health::kReady;
  table.report(table.add(target(0)), ready);
  EXPECT_TRUE(table.anybody_away());
  clock_.advance_ns(61'000'000'000);
  EXPECT_FALSE(table.anybody_away());
}

TEST_F(WorkerTableTest, TheSpeedOfAWorkerIsLearned) {
  RequestFacts request;
  request.prompt_tokens = 100;
  auto lease = table_.choose(request, {});
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->tokens_ahead(), 100);
  table_.on_first_token(lease->id(), 0.2, lease->tokens_ahead());
  const auto speed = [&] {
    return table_.snapshot()[static_cast<size_t>(lease->id())].first_token_seconds;
  };
  EXPECT_NEAR(speed(), 0.002, 1e-12);
  table_.on_first_token(lease->id(), 0.4, 100);  // it has become slower
  EXPECT_NEAR(speed(), 0.0022, 1e-12);
}

TEST_F(WorkerTableTest, WhoComesBackBeginsAnew) {
  for (int i = 0; i < WorkerHealth::kErrorsMax; ++i) table_.on_answer(0, 500);
  table_.on_heard(0);  // a stream that begins says nothing of how it ends
  EXPECT_EQ(chosen({}), (std::set{1, 2}));
  report(0, WorkerReport::Health::kReady);  // a poll does not close a breaker
  EXPECT_EQ(chosen({}), (std::set{1, 2}));
  EXPECT_TRUE(table_.anybody_away());  // nobody asks it for what it may have
  table_.on_lost(0);
  EXPECT_TRUE(table_.anybody_away());
  report(0, WorkerReport::Health::kReady);
  EXPECT_EQ(chosen({}), (std::set{0, 1, 2}));
}

TEST_F(WorkerTableTest, ModelsAndOwnersDecideFirst) {
  table_.report_models(0, {{"a", 100}});
  table_.report_models(1, {{"b", 200}});
  table_.report_models(2, {{"a", 100}, {"b", 300}});
  RequestFacts request;
  request.model = "a";
  EXPECT_EQ(chosen(request), (std::set{0, 2}));
  request.model = "unheard-of";  // who gets it says so
  EXPECT_EQ(chosen(request), (std::set{0, 1, 2}));
  EXPECT_EQ(table_.context_of("b"), 300);
  RequestFacts owned;
  owned.kind = RouteKind::kOwned;
  owned.owned_id = "resp_1";
  EXPECT_EQ(chosen(owned).size(), 3u);
  table_.remember_owner("resp_1", 2);
  EXPECT_EQ(chosen(owned), (std::set{2}));
  EXPECT_EQ(chosen(owned, {2}), (std::set{0, 1}));  // it is gone there: the others are asked
  RequestFacts home;
  home.kind = RouteKind::kHome;
  home.client = "c";
  EXPECT_EQ(chosen(home).size(), 1u);
}

TEST_F(WorkerTableTest, LeasesCountWhereTheyAre) {
  RequestFacts request;
  request.prompt_tokens = 100;
  request.output_tokens = 50;
  auto lease = table_.choose(request, {});
  ASSERT_TRUE(lease);
  const auto load = [&](int id) { return table_.snapshot()[static_cast<size_t>(id)]; };
  const int id = lease->id();
  EXPECT_EQ(load(id).in_flight, 1);
  EXPECT_EQ(load(id).load_tokens, 150);
  report(id, WorkerReport::Health::kReady, 3);  // two are somebody else's
  EXPECT_EQ(load(id).load_tokens, 150 + 2 * 512);
  lease->release();
  EXPECT_EQ(load(id).in_flight, 0);
}

TEST(RequestAttempts, WhatIsDoneWhenAWorkerFails) {
  using enum AttemptFailure;
  const AttemptPolicy policy{.wait_seconds = 10, .faults_max = 2};
  const RequestAttempts::Answer nothing, begun{.begun = true},
      journalled{.begun = true, .resumable = true};
  {
    RequestAttempts files(policy, false);  // may have been done
    EXPECT_EQ(files.on_failure(0, kNotSent, nothing), NextStep::kSend);
    EXPECT_EQ(files.on_failure(1, kBroken, nothing), NextStep::kGiveUp);
  }
  RequestAttempts attempts(policy, true);
  EXPECT_EQ(attempts.on_failure(0, kBroken, nothing), NextStep::kSend);
  EXPECT_EQ(attempts.on_failure(1, kErrorEvent, journalled), NextStep::kResume);
  EXPECT_EQ(attempts.on_failure(1, kBroken, begun), NextStep::kGiveUp);
  attempts.on_progress();
  EXPECT_EQ(attempts.on_failure(2, kSilent, journalled), NextStep::kResume);
  EXPECT_EQ(attempts.tried(), (std::vector{0, 1, 2}));
  double waited = 0;
  while (waited < 20 && attempts.on_worker_missing({.up = false}, journalled) == NextStep::kWait) {
    EXPECT_NEAR(attempts.pause_seconds(), 0.05, 1e-9);  // somebody may come at any time
    waited += attempts.pause_seconds();
  }
  EXPECT_NEAR(waited, 10, 0.1);
  EXPECT_EQ(attempts.on_worker_missing({.up = false}, journalled), NextStep::kGiveUp);
  EXPECT_EQ(attempts.on_failure(2, kTooLong, journalled), NextStep::kGiveUp);
  EXPECT_EQ(attempts.on_failure(2, kDifferent, journalled), NextStep::kGiveUp);
}

TEST(RequestAttempts, WhoeverStaysBusyIsAskedLessAndLessAndNotForEver) {
  using enum AttemptFailure;
  RequestAttempts attempts({.wait_seconds = 30}, true);
  const RequestAttempts::Answer journalled{.begun = true, .resumable = true};
  std::vector<double> pauses;
  const auto round = [&] {
    EXPECT_EQ(attempts.on_failure(0, kBusy, journalled), NextStep::kResume);
    const NextStep next = attempts.on_worker_missing({.up = true}, journalled);
    if (next == NextStep::kWait) pauses.push_back(attempts.pause_seconds());
    return next;
  };
  while (round() == NextStep::kWait) ASSERT_LT(pauses.size(), 100u);
  ASSERT_EQ(pauses.size(), 20u);
  EXPECT_NEAR(pauses[0], 0.05, 1e-9);
  EXPECT_NEAR(pauses[1], 0.1, 1e-9);
  EXPECT_NEAR(pauses.back(), 2, 1e-9);
  attempts.on_answer_bytes();
  attempts.on_retry_after(1);
  EXPECT_EQ(round(), NextStep::kWait);
  EXPECT_NEAR(pauses.back(), 1, 1e-9);
  EXPECT_EQ(round(), NextStep::kWait);
  EXPECT_NEAR(pauses.back(), 0.1, 1e-9);
}

TEST(RequestAttempts, AStreamOfAnotherArithmeticIsRefusedUnlessItMayBeInexact) {
  const RequestAttempts::Answer journalled{.begun = true, .resumable = true};
  RequestAttempts exact({}, true);
  EXPECT_EQ(exact.on_failure(1, AttemptFailure::kNotEqual, journalled), NextStep::kResume);
  EXPECT_EQ(exact.on_worker_missing({.up = true}, journalled), NextStep::kGiveUp);
  RequestAttempts inexact({.resume_inexact = true}, true);
  EXPECT_EQ(inexact.on_failure(1, AttemptFailure::kNotEqual, journalled), NextStep::kResume);
  EXPECT_FALSE(inexact.inexact());
  EXPECT_EQ(inexact.on_worker_missing({.up = true}, journalled), NextStep::kResume);
  EXPECT_TRUE(inexact.inexact());
  EXPECT_TRUE(inexact.tried().empty());
}

TEST(RequestAttempts, ABusyAnswerIsPassedOnWhenNobodyElseTakesIt) {
  RequestAttempts attempts({}, true);
  EXPECT_EQ(attempts.on_failure(0, AttemptFailure::kBusy, {}), NextStep::kSend);
  EXPECT_EQ(attempts.on_worker_missing({.up = true}, {}), NextStep::kPassOn);
}

// A worker whose weights are spoiled answers 500; who is away may be well.
TEST(RequestAttempts, AnErrorIsNotPassedOnWhileSomebodyIsAway) {
  RequestAttempts attempts({.wait_seconds = 30, .faults_max = 3}, true);
  EXPECT_EQ(attempts.on_failure(0, AttemptFailure::kServerError, {}), NextStep::kSend);
  EXPECT_EQ(attempts.on_worker_missing({.up = true, .away = true}, {}), NextStep::kWait);
  EXPECT_EQ(attempts.tried(), std::vector<int>{0});  // what it cannot do it is not asked again
  EXPECT_EQ(attempts.on_failure(1, AttemptFailure::kServerError, {}), NextStep::kSend);
  double waited = 0;
  while (attempts.on_worker_missing({.up = true, .away = true}, {}) == NextStep::kWait) {
    waited += attempts.pause_seconds();
    ASSERT_LT(waited, 40);
    EXPECT_EQ(attempts.tried(), (std::vector<int>{0, 1}));
  }
  EXPECT_EQ(attempts.on_worker_missing({.up = true, .away = true}, {}), NextStep::kPassOn);
  RequestAttempts alone({}, true);
  EXPECT_EQ(alone.on_failure(0, AttemptFailure::kServerError, {}), NextStep::kSend);
  EXPECT_EQ(alone.on_worker_missing({.up = true, .away = false}, {}), NextStep::kPassOn);
}

TEST(RequestAttempts, WhatNobodyHasMayBeWithWhoIsAway) {
  RequestAttempts attempts({.wait_seconds = 1}, true);
  EXPECT_EQ(attempts.on_failure(0, AttemptFailure::kUnknownHere, {}), NextStep::kSend);
  double waited = 0;
  while (attempts.on_worker_missing({.up = true, .away = true}, {}) == NextStep::kWait) {
    waited += attempts.pause_seconds();
    ASSERT_LT(waited, 10);
    EXPECT_TRUE(attempts.tried().empty());  // all are asked again: it may have come back
    attempts.on_failure(0, AttemptFailure::kUnknownHere, {});
  }
  EXPECT_GE(waited, 1);
  EXPECT_EQ(attempts.on_worker_missing({.up = true, .away = true}, {}), NextStep::kPassOn);
  RequestAttempts all_asked({}, true);
  all_asked.on_failure(0, AttemptFailure::kUnknownHere, {});
  EXPECT_EQ(all_asked.on_worker_missing({.up = true}, {}), NextStep::kPassOn);
}

TEST(AnswerTokens, AreReadOfEveryProtocol) {
  EXPECT_EQ(generated_tokens(R"({"choices":[],"usage":{"completion_tokens":7}})"), 7);
  EXPECT_EQ(generated_tokens(R"({"usage":{"input_tokens":3,"output_tokens":8}})"), 8);
  EXPECT_EQ(generated_tokens(R"({"response":"x","eval_count":9})"), 9);
  EXPECT_EQ(generated_tokens(R"({"text":"x","meta_info":{"completion_tokens":4}})"), 4);
  EXPECT_EQ(generated_tokens(R"({"content":"x","tokens_predicted":5})"), 5);
  EXPECT_EQ(generated_tokens(std::string(400, 'x')), 100);
  EXPECT_EQ(events_in("data: a\n\ndata: b\n\n", StreamFraming::kEvents), 2);
  EXPECT_EQ(events_in(": keep-alive\n\ndata: b\n\n: keep-alive\n\n", StreamFraming::kEvents), 1);
  EXPECT_EQ(events_in("{}\n{}\n{}\n", StreamFraming::kLines), 3);
}

TEST(ModelAliases, WhatIsHardGoesToTheModelThatTakesIt) {
  ModelAliases aliases;
  ASSERT_TRUE(aliases.add_alias("auto=small,large").ok());
  ASSERT_TRUE(aliases.add_cost("small=1,1").ok());
  ASSERT_TRUE(aliases.add_cost("large=9,9").ok());
  ASSERT_TRUE(aliases.add_difficulty("small=0.4").ok());
  for (const char* bad :
       {"", "small", "=0.1", "small=", "small=2", "small=-1", "small=x", "m=nan"}) {
    EXPECT_FALSE(aliases.add_difficulty(bad).ok()) << bad;
  }
  const auto first = [&](std::string_view fields, std::vector<HttpHeader> headers = {}) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.headers = std::move(headers);
    request.body = R"({"model":"auto")" + std::string(fields) + "}";
    return aliases.models_for(RequestFacts(request), [](auto) { return 0; }).front();
  };
  EXPECT_EQ(first(""), "large");  // who says nothing is not easy
  EXPECT_EQ(first(R"(,"reasoning_effort":"low")"), "small");
  EXPECT_EQ(first(R"(,"reasoning":{"effort":"minimal"})"), "small");
  EXPECT_EQ(first(R"(,"reasoning_effort":"high")"), "large");
  EXPECT_EQ(first("", {{"x-headrace-difficulty", "0.1"}}), "small");
  EXPECT_EQ(first(R"(,"reasoning_effort":"low")", {{"x-headrace-difficulty", "1"}}), "large");
  ASSERT_TRUE(aliases.add_difficulty("large=0.6").ok());
  EXPECT_EQ(first(R"(,"reasoning_effort":"high")"), "large");  // too hard for both, less for it
}

TEST(WorkerAnswer, IsReadHoweverItIsCut) {
  const std::string_view chunked =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-A: b\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= chunked.size(); ++piece) {
    WorkerAnswer answer;
    for (size_t at = 0; at < chunked.size(); at += piece) {
      ASSERT_TRUE(answer.feed(chunked.substr(at, piece)).ok());
    }
    ASSERT_TRUE(answer.complete());
    EXPECT_TRUE(answer.keeps_alive());
    EXPECT_EQ(answer.body(), "abcde");
    EXPECT_EQ(answer.content_type(), "text/event-stream");
    ASSERT_EQ(answer.headers().size(), 1u);
    EXPECT_EQ(answer.headers()[0].name, "X-A");
  }
}

TEST(WorkerAnswer, WhatIsNoneOrBreaksOffIsAnError) {
  EXPECT_FALSE(WorkerAnswer().feed("SSH-2.0-OpenSSH\r\n").ok());
  EXPECT_FALSE(WorkerAnswer().feed("HTTP/1.1 x\r\n\r\n").ok());
  EXPECT_FALSE(WorkerAnswer().feed("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab").ok());
  WorkerAnswer broken;
  EXPECT_TRUE(broken.feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab").ok());
  EXPECT_FALSE(broken.end().ok());
  WorkerAnswer to_end;
  EXPECT_TRUE(to_end.feed("HTTP/1.1 200 OK\r\n\r\nab").ok());
  EXPECT_TRUE(to_end.end().ok());
  EXPECT_FALSE(to_end.keeps_alive());
}

TEST(WorkerAnswer, AHeadThatAClientCouldReadOtherwiseIsNone) {
  const auto reads = [](const std::string& header) {
    return WorkerAnswer().feed("HTTP/1.1 200 OK\r\n" + header + "\r\n\r\n").ok();
  };
  EXPECT_TRUE(reads("X-A: b c; d=\"e\""));
  EXPECT_TRUE(reads("Content-Length: 7\r\nContent-Length: 7"));
  for (const std::string& header :
       {std::string("X-A: b\nX-B: c"), std::string("X-A: b\rX-B: c"), std::string("X-A: b\0c", 8),
        std::string("Content-Length : 7"), std::string(": x"), std::string(" folded: x"),
        std::string("X\nA: x"), std::string("Content-Length: 7x"),
        std::string("Content-Length: 7\r\nContent-Length: 8")}) {
    EXPECT_FALSE(reads(header)) << header;
  }
}

TEST(WorkerAnswer, AnswersBeforeTheAnswerAreSkippedAndHaveABound) {
  const std::string early = "HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n";
  std::string heads;
  for (int i = 0; i < 16; ++i) heads += early;
  WorkerAnswer answer;
  EXPECT_TRUE(answer.feed(heads + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").ok());
  EXPECT_TRUE(answer.complete());
  EXPECT_EQ(answer.body(), "ab");
  EXPECT_FALSE(WorkerAnswer().feed(heads + early).ok());
}

TEST(ModelAliases, TheCheapestThatHoldsTheRequestAnswersIt) {
  ModelAliases aliases;
  ASSERT_TRUE(aliases.add_alias("auto=large,small").ok());
  ASSERT_TRUE(aliases.add_cost("small=0.1,0.4").ok());
  ASSERT_TRUE(aliases.add_cost("large=1,4").ok());
  EXPECT_FALSE(aliases.add_alias("auto=x").ok());
  EXPECT_FALSE(aliases.add_alias("x").ok());
  EXPECT_FALSE(aliases.add_cost("small=0.1").ok());
  EXPECT_FALSE(aliases.add_cost("small=a,b").ok());
  const auto context = [](std::string_view model) { return model == "small" ? 2000 : 100000; };
  HttpRequest request =
      post("/v1/completions", R"({"max_tokens": 10, "model": "auto", "prompt": "hi"})");
  const RequestFacts small(request);
  EXPECT_EQ(aliases.models_for(small, context), (std::vector<std::string>{"small", "large"}));
  EXPECT_EQ(with_model(request.body, small, "small"),
            R"({"max_tokens": 10, "model": "small", "prompt": "hi"})");
  const RequestFacts large(
      post("/v1/completions", R"({"model":"auto","prompt":")" + std::string(9000, 'x') + "\"}"));
  EXPECT_EQ(aliases.models_for(large, context), std::vector<std::string>{"large"});
}

TEST(WorkerWatch, ReadsWhatServersSayOfThemselves) {
  WorkerReport report;
  read_worker_metrics(
      "# HELP vllm:num_requests_running x\nvllm:num_requests_running{model=\"a\"} 2\n"
      "vllm:num_requests_running{model=\"b\"} 1\nvllm:num_requests_waiting 4\n"
      "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n",
      report);
  EXPECT_EQ(report.requests, 7);
  EXPECT_EQ(report.cache_tokens, 1600);
  WorkerReport silent;
  read_worker_metrics("up 1\n", silent);
  EXPECT_EQ(silent.requests, -1);
  const auto models =
      read_worker_models(R"({"data":[{"id":"a","max_model_len":10},{"id":"b"},{}]})");
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].tokens_max, 10);
  EXPECT_FALSE(models[0].made);
  EXPECT_TRUE(read_worker_models(R"({"data":[{"id":"a","made":true}]})").at(0).made);
  EXPECT_TRUE(read_worker_models("no").empty());
}

}  // namespace
}  // namespace headrace::route_test
