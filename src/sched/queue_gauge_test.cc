#include "sched/queue_gauge.h"

#include <gtest/gtest.h>

namespace headrace::queue_gauge_test {
namespace {

SchedulerOptions bounded(int32_t requests, int32_t tokens, double seconds) {
  SchedulerOptions options;
  options.max_num_seqs = 1;
  options.max_queued_requests = requests - 1;
  options.queue_bounds.tokens = tokens;
  options.queue_bounds.seconds = seconds;
  return options;
}

TEST(QueueGauge, BoundsRequests) {
  QueueGauge gauge(bounded(3, 0, 0));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(gauge.check(10, 0).ok());
    gauge.entered(10, 0);
  }
  EXPECT_EQ(gauge.check(10, 0).code(), StatusCode::kExhausted);
  gauge.started(10, 1);
  EXPECT_FALSE(gauge.check(10, 1).ok()) << "it runs";
  gauge.ended(2);
  EXPECT_TRUE(gauge.check(10, 2).ok());
}

TEST(QueueGauge, BoundsTokensButTakesOneOfAnyLength) {
  QueueGauge gauge(bounded(100, 1000, 0));
  EXPECT_TRUE(gauge.check(5000, 0).ok());
  gauge.entered(900, 0);
  EXPECT_TRUE(gauge.check(100, 0).ok());
  EXPECT_FALSE(gauge.check(101, 0).ok());
  gauge.left_unstarted(900);
  EXPECT_TRUE(gauge.check(5000, 0).ok());
}

// 500 prompt tokens and five ends a second, for a minute.
TEST(QueueGauge, TellsHowLongTheQueueTakes) {
  QueueGauge gauge(bounded(20, 5000, 8));
  double now = 0;
  for (int i = 0; i < 300; ++i) {
    gauge.entered(100, now);
    now += 0.2;
    gauge.started(100, now);
    gauge.ended(now);
  }
  for (int i = 0; i < 20; ++i) gauge.entered(175, now);
  EXPECT_NEAR(gauge.drain_seconds(now), 3500 / 500.0, 0.5);
  EXPECT_EQ(gauge.retry_seconds(100, now), QueueGauge::kRetrySecondsMin) << "0.2 s, at least 1";
  EXPECT_NEAR(gauge.retry_seconds(3500, now), 2000 / 500.0, 0.5);
  EXPECT_FALSE(gauge.check(3500, now).ok());
  gauge.entered(1000, now);
  EXPECT_NE(gauge.check(1, now).message().find("requests"), std::string::npos);
}

// Two ends a second while there is work: told after three seconds of it, and after an hour without.
TEST(QueueGauge, ShortAndOldWorkGiveTheSameRates) {
  QueueGauge gauge(bounded(20, 0, 0));
  const auto work = [&](double from) {
    for (int i = 0; i < 20; ++i) gauge.entered(10, from);
    for (int i = 1; i <= 6; ++i) {
      gauge.started(10, from + 0.5 * i);
      gauge.ended(from + 0.5 * i);
      gauge.entered(10, from + 0.5 * i);
    }
  };
  work(0);
  EXPECT_EQ(gauge.outstanding(), 20);
  gauge.entered(10, 3);
  gauge.entered(10, 3);
  gauge.entered(10, 3);
  EXPECT_NEAR(gauge.retry_seconds(10, 3), 2, 0.3);  // four ends
  for (double now = 3; gauge.outstanding() > 0; now += 0.5) gauge.ended(now + 0.5);
  work(3600);
  for (int i = 0; i < 3; ++i) gauge.entered(10, 3603);
  EXPECT_NEAR(gauge.retry_seconds(10, 3603), 2, 0.3);
}

TEST(QueueGauge, BoundsSeconds) {
  QueueGauge gauge(bounded(1000, 0, 2));
  for (int i = 1; i <= 100; ++i) {
    gauge.entered(100, 0.1 * (i - 1));
    gauge.started(100, 0.1 * i);
    gauge.ended(0.1 * i);
  }
  gauge.entered(1000, 10);
  EXPECT_TRUE(gauge.check(100, 10).ok());
  gauge.entered(1500, 10);  // 2,500 tokens at 1,000 a second
  EXPECT_NEAR(gauge.drain_seconds(10), 2.5, 0.05);
  EXPECT_FALSE(gauge.check(100, 10).ok());
  EXPECT_GE(gauge.retry_seconds(100, 10), 1);
}

}  // namespace
}  // namespace headrace::queue_gauge_test
