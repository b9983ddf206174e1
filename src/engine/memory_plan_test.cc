#include "engine/memory_plan.h"

#include <gtest/gtest.h>

namespace headrace::memory_plan_test {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// An 8B model on an H200.
MemoryPlanInput input() {
  return {.total_bytes = 140 * kGiB,
          .free_bytes = 124 * kGiB,
          .weight_bytes = 15 * kGiB,
          .runner_bytes = 2 * kGiB,
          .recording_bytes = kGiB / 16,
          .page_bytes = 2 << 20,
          .pages_min = 512};
}

TEST(MemoryPlan, GivesWhatIsLeftOfTheShareToKeysAndValues) {
  const MemoryPlan plan = plan_memory(input()).value();
  const int64_t kv_bytes = plan.page_count * plan.page_bytes;
  const int64_t all = plan.weight_bytes + plan.runner_bytes + plan.recording_bytes +
                      plan.reserve_bytes + plan.other_bytes + kv_bytes;
  EXPECT_LE(all, 126 * kGiB);  // 0.9 of 140
  EXPECT_GT(all, 126 * kGiB - plan.page_bytes);
  EXPECT_EQ(plan.other_bytes, kGiB);
  EXPECT_EQ(all + plan.free_after_bytes, 140 * kGiB);
}

TEST(MemoryPlan, TakesTheSizeThatIsAskedFor) {
  MemoryPlanInput asked = input();
  asked.kv_bytes_wanted = 10 * kGiB + 5;
  EXPECT_EQ(plan_memory(asked).value().page_count, 10 * kGiB / asked.page_bytes);
}

// A page of 8 bits has a layer unpacked beside it.
TEST(MemoryPlan, CountsWhatPagesHaveBesideThePool) {
  MemoryPlanInput fp8 = input();
  fp8.page_bytes /= 2;
  fp8.unpacked_page_bytes = fp8.page_bytes / 16;
  const MemoryPlan wide = plan_memory(input()).value(), plan = plan_memory(fp8).value();
  EXPECT_NEAR(static_cast<double>(plan.page_count) / static_cast<double>(wide.page_count),
              2 * 16.0 / 17, 1e-3);
  const int64_t pages_bytes = plan.page_count * (plan.page_bytes + plan.unpacked_page_bytes);
  EXPECT_EQ(plan.weight_bytes + plan.runner_bytes + plan.recording_bytes + plan.reserve_bytes +
                plan.other_bytes + pages_bytes + plan.free_after_bytes,
            140 * kGiB);
  EXPECT_NE(plan.to_string().find("a layer of them unpacked"), std::string::npos);
  EXPECT_EQ(wide.to_string().find("unpacked"), std::string::npos);
  // The flag is of the pool alone, and both must fit.
  fp8.kv_bytes_wanted = 10 * kGiB;
  EXPECT_EQ(plan_memory(fp8).value().page_count, 10 * kGiB / fp8.page_bytes);
  fp8.kv_bytes_wanted = 118 * kGiB;
  EXPECT_NE(plan_memory(fp8).status().message().find("--kv-cache-memory-bytes"), std::string::npos);
}

TEST(MemoryPlan, NamesTheFlagThatWouldHelp) {
  MemoryPlanInput tight = input();
  tight.utilization = 0.125;
  EXPECT_NE(plan_memory(tight).status().message().find("--gpu-memory-utilization"),
            std::string::npos);
  tight = input();
  tight.pages_min = 1 << 20;
  EXPECT_NE(plan_memory(tight).status().message().find("--max-model-len"), std::string::npos);
  tight = input();
  tight.kv_bytes_wanted = 130 * kGiB;
  EXPECT_NE(plan_memory(tight).status().message().find("--kv-cache-memory-bytes"),
            std::string::npos);
}

// A small model beside 8 GiB of free memory.
HostMemoryInput host_input() {
  return {.free_bytes = 8 * kGiB,
          .runner_bytes = kGiB / 8,
          .kv_bytes_default = kGiB,
          .page_bytes = 1 << 20,
          .pages_min = 2};
}

TEST(HostMemory, TheDefaultTakesAQuarterOfWhatIsLeftAtMost) {
  EXPECT_EQ(plan_host_pages(host_input()).value(), 1024);
  HostMemoryInput tight = host_input();
  tight.free_bytes = kGiB + kGiB / 8;
  EXPECT_EQ(plan_host_pages(tight).value(), 256);
  tight.tier_bytes = kGiB / 2;
  EXPECT_EQ(plan_host_pages(tight).value(), 128);
}

TEST(HostMemory, NamesTheFlagThatWouldHelp) {
  HostMemoryInput tight = host_input();
  tight.kv_bytes_wanted = 8 * kGiB;  // as much as is free, without the activations
  EXPECT_NE(plan_host_pages(tight).status().message().find("--kv-cache-memory-bytes asks for 8.00"),
            std::string::npos);
  tight = host_input();
  tight.runner_bytes = 9 * kGiB;
  EXPECT_NE(plan_host_pages(tight).status().message().find("--max-num-batched-tokens"),
            std::string::npos);
  EXPECT_EQ(plan_host_pages(tight).status().message().find("--kv-offloading-size"),
            std::string::npos);
  EXPECT_EQ(plan_host_pages(tight).status().message().find("states"), std::string::npos);
  tight.keeps_states = true;
  EXPECT_NE(plan_host_pages(tight).status().message().find("--state-checkpoints"),
            std::string::npos);
  tight.tier_bytes = kGiB;
  EXPECT_NE(plan_host_pages(tight).status().message().find("--kv-offloading-size"),
            std::string::npos);
  tight = host_input();
  tight.kv_bytes_wanted = 3 << 19;
  EXPECT_NE(plan_host_pages(tight).status().message().find("raise --kv-cache-memory-bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::memory_plan_test
