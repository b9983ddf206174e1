#include "apps/top_view.h"

#include <gtest/gtest.h>

#include "terminal/cell_width.h"

namespace headrace::top_view_test {
namespace {

constexpr std::string_view kExposed = R"(# HELP x
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="a"} 3
vllm:num_requests_running{model_name="b \"q\" \\ {x}"} 2
vllm:num_requests_waiting 7
vllm:kv_cache_usage_perc{model_name="a"} 0.25
vllm:kv_cache_usage_perc{model_name="b"} 0.5
vllm:prefix_cache_queries_total 1000
vllm:prefix_cache_hits_total 750
vllm:generation_tokens_total 5e2
vllm:time_to_first_token_seconds_bucket{model_name="a",le="0.01"} 10
vllm:time_to_first_token_seconds_bucket{model_name="a",le="0.1"} 90
vllm:time_to_first_token_seconds_bucket{model_name="a",le="+Inf"} 100
vllm:time_to_first_token_seconds_bucket{model_name="b",le="0.01"} 10
vllm:time_to_first_token_seconds_bucket{model_name="b",le="0.1"} 10
vllm:time_to_first_token_seconds_bucket{model_name="b",le="+Inf"} 10
malformed{x="
nothing
)";

TEST(MetricsText, ReadsValuesAndLabels) {
  const MetricsText metrics = MetricsText::parse(kExposed);
  EXPECT_EQ(metrics.sum("vllm:num_requests_running"), 5);
  EXPECT_EQ(metrics.greatest("vllm:kv_cache_usage_perc"), 0.5);
  EXPECT_EQ(metrics.sum("vllm:generation_tokens_total"), 500);
  EXPECT_EQ(metrics.sum("nothing"), 0);
  EXPECT_FALSE(metrics.has("malformed"));
  const auto models = metrics.by_label("vllm:num_requests_running", "model_name");
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[1].first, "b \"q\" \\ {x}");
}

TEST(MetricsText, TakesNumbersAlone) {
  const MetricsText metrics = MetricsText::parse(
      "a NaN\na +Inf\na -Inf\na inf\na 3\nb 1e300\nb 1e300\n"
      "h_bucket{le=\"NaN\"} 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} NaN\n");
  EXPECT_EQ(metrics.sum("a"), 3);
  EXPECT_EQ(metrics.sum("b"), 2e18);
  EXPECT_EQ(metrics.histogram("h").buckets.size(), 1U);
}

TEST(MetricHistogram, QuantilesLieInTheirBucket) {
  const MetricHistogram histogram =
      MetricsText::parse(kExposed).histogram("vllm:time_to_first_token_seconds");
  ASSERT_EQ(histogram.buckets.size(), 3U);
  EXPECT_EQ(histogram.count(), 110);
  EXPECT_NEAR(*histogram.quantile(10.0 / 110), 0.005, 1e-9);
  EXPECT_NEAR(*histogram.quantile(60.0 / 110), 0.01 + 0.09 * 40 / 80, 1e-9);
  EXPECT_EQ(*histogram.quantile(1), 0.1);  // more is not known
  EXPECT_FALSE(MetricHistogram().quantile(0.5));
  EXPECT_EQ(histogram.since(histogram).count(), 0);
  EXPECT_EQ(MetricHistogram().since(histogram).count(), 0);
}

ServerLook look_at(double seconds, int tokens) {
  std::string text(kExposed);
  text.replace(text.find("5e2"), 3, std::to_string(tokens));
  return {.seconds = seconds, .metrics = MetricsText::parse(text), .models = {"a", "b"}};
}

TEST(TopView, ShowsWhatTheServerDoes) {
  TopView view("http://host:1");
  view.add(look_at(10, 500));
  view.add(look_at(11, 500));
  view.add(look_at(13, 700));
  const std::string frame = plain_text(view.frame({.columns = 80, .rows = 30}));
  for (const char* text :
       {"http://host:1", "a, b", "5 running", "7 waiting", "50 %", "75 % of 1000 tokens",
        "100.0 tok/s answered", "first token", "p99", "tok/s answered, up to 100\n"}) {
    EXPECT_NE(frame.find(text), std::string::npos) << text << " in " << frame;
  }
}

TEST(TopView, FitsAnyWindow) {
  TopView view("http://a.host.with.a.long.name.that.no.narrow.window.holds:1");
  for (int i = 0; i < 300; ++i) view.add(look_at(i, 100 * i));
  for (const TerminalSize size : {TerminalSize{80, 24}, {20, 5}, {10, 2}, {200, 60}, {2, 2}}) {
    const std::string frame = plain_text(view.frame(size));
    int rows = 0;
    for (size_t first = 0; first < frame.size();) {
      const size_t end = std::min(frame.find('\n', first), frame.size());
      EXPECT_LE(text_columns(frame.substr(first, end - first)), size.columns);
      first = end + 1;
      ++rows;
    }
    EXPECT_LE(rows, size.rows);
  }
}

TEST(TopView, SaysThatNobodyAnswersUntilSomebodyDoes) {
  TopView view("http://host:1");
  view.add(look_at(1, 1));
  view.add_failure("connect to host:1: Connection refused");
  EXPECT_NE(plain_text(view.frame({})).find("Connection refused"), std::string::npos);
  view.add(look_at(2, 1));
  EXPECT_EQ(plain_text(view.frame({})).find("Connection refused"), std::string::npos);
}

TEST(TopView, ACounterThatBeganAgainIsNoNegativeSpeed) {
  TopView view("http://host:1");
  view.add(look_at(1, 1000));
  view.add(look_at(2, 10));
  EXPECT_NE(plain_text(view.frame({})).find(" 0.0 tok/s answered"), std::string::npos);
}

}  // namespace
}  // namespace headrace::top_view_test
