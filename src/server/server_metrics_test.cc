// What is told of an engine's steps, whoever asks when.
#include "server/server_metrics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace headrace::server_metrics_test {
namespace {

double value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + "{");
  EXPECT_NE(at, std::string::npos) << name;
  if (at == std::string::npos) return 0;
  return std::stod(text.substr(text.find("} ", at) + 2));
}

// Of two that expose a model at once nobody adds what the other has added, and what one has asked
// of the engine is never older than what was told before.
TEST(ServerMetrics, CountersOfAnEngineAreItsOwnWhoeverExposesThem) {
  constexpr int kThreads = 4, kTimes = 200;
  const auto metrics = std::make_shared<ServerMetrics>("m");
  std::atomic<uint64_t> steps{0};
  const auto stats = [&] {
    EngineStats now;
    now.steps = ++steps;
    std::this_thread::yield();
    return now;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kTimes; ++j) {
        ServerMetrics::expose({{.metrics = metrics, .stats = stats, .edge = {}, .adapters = {}}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text =
      ServerMetrics::expose({{.metrics = metrics, .stats = stats, .edge = {}, .adapters = {}}});
  EXPECT_EQ(value_of(text, "headrace:steps_total"), kThreads * kTimes + 1);
}

}  // namespace
}  // namespace headrace::server_metrics_test
