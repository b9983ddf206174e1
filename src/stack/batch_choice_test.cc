#include "stack/batch_choice.h"

#include <gtest/gtest.h>

namespace headrace::batch_choice_test {
namespace {

constexpr BatchShapeInput kGpu = {.on_gpu = true,
                                  .weight_bytes = int64_t{15} << 30,
                                  .kv_token_bytes = 128 << 10,
                                  .kv_room_bytes = int64_t{104} << 30,
                                  .step_token_bytes = 120 << 10,
                                  .job = {}};
// Answers of unlike lengths.
constexpr JobWork kJob = {
    .requests = 1000, .prompt_tokens = 222780, .output_tokens = 211066, .longest_output = 1024};

BatchShapeOptions job_options(const std::string& policy) {
  BatchShapeOptions options;
  options.job = kJob;
  options.policy = policy;
  return options;
}

TEST(BatchChoice, OfAJobSendsTheLongestFirstThroughALine) {
  const BatchChoice choice = choose_batch(job_options("auto"), kGpu);
  EXPECT_EQ(choice.policy, "fcfs");
  EXPECT_EQ(choice.job_order, RequestOrder::kDeclared);
  EXPECT_EQ(choice.order_label, "lengths declared");
  EXPECT_EQ(choice.max_num_seqs, 256);
  EXPECT_EQ(choice.max_num_batched_tokens, 512);
  EXPECT_TRUE(choice.line.starts_with("256 sequences at once, 512 tokens a step, lengths declared"))
      << choice.line;
}

TEST(BatchChoice, UnderANamedPolicyLeavesTheOrderToIt) {
  const BatchChoice arrival = choose_batch(job_options("fcfs"), kGpu);
  EXPECT_EQ(arrival.policy, "fcfs");
  EXPECT_EQ(arrival.job_order, RequestOrder::kArrival);
  EXPECT_EQ(arrival.order_label, "order of arrival");
  EXPECT_EQ(arrival.max_num_seqs, 1000);  // no length is looked at
  const BatchChoice declared = choose_batch(job_options("ljf-declared"), kGpu);
  EXPECT_EQ(declared.policy, "ljf-declared");
  EXPECT_EQ(declared.job_order, RequestOrder::kArrival);  // the policy reorders
  EXPECT_EQ(declared.order_label, "lengths declared");
  EXPECT_EQ(declared.max_num_batched_tokens, 512);
  EXPECT_EQ(choose_batch(job_options("mlfq"), kGpu).order_label, "order of mlfq");
}

TEST(BatchChoice, TakesFlagsAtTheirWordAndSaysSo) {
  BatchShapeOptions options = job_options("auto");
  options.max_num_seqs = 7;
  const BatchChoice choice = choose_batch(options, kGpu);
  EXPECT_EQ(choice.max_num_seqs, 7);
  EXPECT_EQ(choice.max_num_batched_tokens, 512);
  EXPECT_NE(choice.line.find("by flags"), choice.line.npos) << choice.line;
}

TEST(BatchChoice, OfAServerGoesByArrival) {
  const BatchChoice choice = choose_batch(BatchShapeOptions(), kGpu);
  EXPECT_EQ(choice.max_num_seqs, 256);
  EXPECT_EQ(choice.max_num_batched_tokens, 8192);
  EXPECT_EQ(choice.order_label, "order of arrival");
}

TEST(BatchChoice, OnACpuIsWhatItWas) {
  BatchShapeOptions options = job_options("auto");
  const BatchChoice choice = choose_batch(options, {.weight_bytes = 1 << 20, .job = {}});
  EXPECT_EQ(choice.max_num_seqs, 64);
  EXPECT_EQ(choice.job_order, RequestOrder::kArrival);
  options.cpu_max_num_seqs = 256;
  EXPECT_EQ(choose_batch(options, {.job = {}}).max_num_seqs, 256);
}

}  // namespace
}  // namespace headrace::batch_choice_test
