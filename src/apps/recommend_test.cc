#include "apps/recommend.h"

#include <gtest/gtest.h>

namespace headrace::recommend_test {
namespace {

constexpr MachineRates kLaptop{.free_bytes = 8'000'000'000, .bytes_per_second = 40e9};

std::vector<Recommendation> for_machine(const MachineRates& machine) {
  std::vector<Recommendation> models;
  for (const KnownModel& known : known_models()) {
    models.emplace_back(std::string(known.name), static_cast<int64_t>(known.gigabytes * 1e9),
                        known.active_share, machine);
  }
  return models;
}

TEST(Recommend, ASpeedIsBandwidthOverTheWeightsThatATokenReads) {
  const Recommendation dense("x", 4'000'000'000, 1, kLaptop);
  EXPECT_DOUBLE_EQ(dense.tokens_per_second(), 10);
  EXPECT_EQ(dense.memory_bytes(), 4'900'000'000);
  EXPECT_EQ(dense.fit(), Fit::kFast);
  EXPECT_DOUBLE_EQ(Recommendation("x", 4'000'000'000, 0.1, kLaptop).tokens_per_second(), 100);
  EXPECT_EQ(Recommendation("x", 6'000'000'000, 1, kLaptop).fit(), Fit::kSlow);
  EXPECT_EQ(Recommendation("x", 7'000'000'000, 1, kLaptop).fit(), Fit::kNot);
}

TEST(Recommend, TheBestIsTheLargestThatIsFast) {
  EXPECT_EQ(best_of(for_machine(kLaptop))->name(), "llama3.1:8b");
  // A mixture, where there is the memory for it.
  EXPECT_EQ(best_of(for_machine({.free_bytes = 64'000'000'000, .bytes_per_second = 40e9}))->name(),
            "qwen3:30b");
  // None is fast: the largest of the slow.
  EXPECT_EQ(best_of(for_machine({.free_bytes = 2'000'000'000, .bytes_per_second = 1e6}))->name(),
            "llama3.2:1b");
  EXPECT_EQ(best_of(for_machine({.free_bytes = 1000, .bytes_per_second = 40e9})), nullptr);
}

TEST(Recommend, TextAndJsonNameTheBest) {
  const std::vector<Recommendation> models = for_machine(kLaptop);
  const std::string text = recommendations_text(models, kLaptop);
  EXPECT_NE(text.find("8.0 GB of memory are free, read at 40.0 GB/s\n"), std::string::npos);
  EXPECT_NE(text.find("\nheadrace run llama3.1:8b --pull"), std::string::npos);
  EXPECT_NE(text.find("too large\n"), std::string::npos);
  EXPECT_EQ(recommendations_json(models, kLaptop).find("best")->as_string(), "llama3.1:8b");
}

TEST(Recommend, TheListIsSortedBySize) {
  for (size_t i = 1; i < known_models().size(); ++i) {
    EXPECT_LT(known_models()[i - 1].gigabytes, known_models()[i].gigabytes);
  }
}

}  // namespace
}  // namespace headrace::recommend_test
