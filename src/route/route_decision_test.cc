#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "route/worker_table.h"

namespace headrace::route_decision_test {
namespace {

constexpr int kWorkers = 4;

// Reading a request and choosing among workers whose indexes are full.
TEST(RouteDecision, TakesMicroseconds) {
  VirtualClock clock;
  WorkerTable table({.prefix_tokens = 256 << 10}, clock);
  WorkerReport ready;
  ready.health = WorkerReport::Health::kReady;
  for (int i = 0; i < kWorkers; ++i) {
    table.report(table.add({.tls = false, .host = std::to_string(i), .port = "1", .path = "/"}),
                 ready);
  }
  constexpr int kRequests = 4000;
  std::vector<HttpRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    HttpRequest& request = requests.emplace_back();
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.body = R"({"model":"m","messages":[{"role":"user","content":")" +
                   std::string(3500, static_cast<char>('a' + i % 20)) + std::to_string(i) +
                   std::string(500, 'x') + R"("}],"stream":true})";
  }
  const SystemClock time;
  double read = 1, choose = 1;  // seconds of a request, of the best hundred in a row
  for (int round = 0; round < kRequests / 100; ++round) {
    std::vector<RequestFacts> facts;
    const double begin = time.now_seconds();
    for (int i = 0; i < 100; ++i)
      facts.emplace_back(requests[static_cast<size_t>(round * 100 + i)]);
    const double between = time.now_seconds();
    for (const RequestFacts& each : facts) ASSERT_TRUE(table.choose(each, {}));
    const double end = time.now_seconds();
    read = std::min(read, (between - begin) / 100);
    choose = std::min(choose, (end - between) / 100);
  }
  std::printf("a request of 4 KB: read in %.1f us, a worker chosen in %.1f us\n", 1e6 * read,
              1e6 * choose);
  EXPECT_LT(read + choose, 200e-6);  // of a machine that does much else
}

}  // namespace
}  // namespace headrace::route_decision_test
