#include "engine/batch_shape.h"

#include <gtest/gtest.h>

namespace headrace::batch_shape_test {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// An 8B model in 16 bits on an H200.
BatchShapeInput h200_8b() {
  return {.on_gpu = true,
          .weight_bytes = 15 * kGiB,
          .kv_token_bytes = 128 << 10,
          .kv_room_bytes = 104 * kGiB,
          .step_token_bytes = 120 << 10};
}

BatchShapeInput with_job(const JobWork& job) {
  BatchShapeInput input = h200_8b();
  input.job = job;
  return input;
}

// `requests` requests of one prompt and one answer length.
JobWork equal(int64_t requests, int64_t prompt, int64_t output) {
  return {.requests = requests,
          .prompt_tokens = requests * prompt,
          .output_tokens = requests * output,
          .longest_output = output};
}

// Of bench/workloads/sharegpt_like.json.
constexpr JobWork kChats = {
    .requests = 1000, .prompt_tokens = 222780, .output_tokens = 211066, .longest_output = 1024};

TEST(BatchShape, OfAServerIsBoundedByTheTimeOfATokenAndGoesByArrival) {
  const BatchShape shape = choose_batch_shape(h200_8b());
  EXPECT_EQ(shape.max_num_seqs, 256);
  EXPECT_EQ(shape.max_num_batched_tokens, 8192);
  EXPECT_EQ(shape.order, RequestOrder::kArrival);
}

TEST(BatchShape, WithLittleMemoryHasFewerSequencesAndShorterSteps) {
  BatchShapeInput tight = h200_8b();
  tight.kv_room_bytes = 4 * kGiB;  // 32,768 tokens, 128 slots of 256
  const BatchShape shape = choose_batch_shape(tight);
  EXPECT_EQ(shape.max_num_seqs, 128);
  EXPECT_LE(shape.max_num_batched_tokens * tight.step_token_bytes, tight.kv_room_bytes / 8);
  EXPECT_GT(shape.max_num_batched_tokens * 2 * tight.step_token_bytes, tight.kv_room_bytes / 8);
  EXPECT_NE(shape.why.find("room"), shape.why.npos) << shape.why;
  tight.kv_room_bytes = -kGiB;  // what cannot be loaded at all is said elsewhere
  EXPECT_EQ(choose_batch_shape(tight).max_num_seqs, 32);
  EXPECT_EQ(choose_batch_shape(tight).max_num_batched_tokens, 512);
}

// Each stage has a step of its own: as many times the sequences, shorter steps, and no job is
// spread over the steps of its longest answer.
TEST(BatchShape, OfStagesFillsAStepOfEach) {
  BatchShapeInput input = h200_8b();
  input.stages = 2;
  EXPECT_EQ(choose_batch_shape(input).max_num_seqs, 512);
  EXPECT_EQ(choose_batch_shape(input).max_num_batched_tokens, 2048);
  input.job = equal(50000, 128, 128);
  EXPECT_EQ(choose_batch_shape(input).max_num_seqs, 1664);  // by the room: 512 tokens each
  input.job = kChats;
  EXPECT_EQ(choose_batch_shape(input).max_num_seqs, 1000);
}

TEST(BatchShape, OfAJobOfUnknownLengthsTakesAllRequestsAtOnceUpToAThousand) {
  const BatchShape shape = choose_batch_shape(with_job({.requests = 1000}));
  EXPECT_EQ(shape.max_num_seqs, 1000);
  EXPECT_EQ(shape.order, RequestOrder::kArrival);
  EXPECT_EQ(choose_batch_shape(with_job({.requests = 50000})).max_num_seqs, 1024);
  EXPECT_EQ(choose_batch_shape(with_job({.requests = 3})).max_num_seqs, 32);
}

TEST(BatchShape, OfAJobIsBoundedByTheRoomForKeysAndValues) {
  BatchShapeInput input = with_job({.requests = 5000});
  input.kv_room_bytes = 16 * kGiB;  // 131,072 tokens
  EXPECT_EQ(choose_batch_shape(input).max_num_seqs, 256);
}

// The cost model of an H200 with 8B finds 256 and 512 best of 192 to 1,000 and 384 to 16,384.
TEST(BatchShape, SpreadsAJobOfUnlikeLengthsOverTheStepsOfTheLongest) {
  const BatchShape shape = choose_batch_shape(with_job(kChats));
  EXPECT_EQ(shape.max_num_seqs, 256);
  EXPECT_EQ(shape.max_num_batched_tokens, 512);
  EXPECT_EQ(shape.order, RequestOrder::kDeclared);
}

TEST(BatchShape, SpreadsALargerJobOverLargerStepsAsFarAsTheyGo) {
  JobWork job = kChats;
  job.requests *= 3, job.prompt_tokens *= 3, job.output_tokens *= 3;
  const BatchShape shape = choose_batch_shape(with_job(job));
  EXPECT_EQ(shape.max_num_seqs, 752);
  EXPECT_EQ(shape.max_num_batched_tokens, 1536);
  job.requests *= 100, job.prompt_tokens *= 100, job.output_tokens *= 100;
  EXPECT_EQ(choose_batch_shape(with_job(job)).max_num_seqs, 1024);
  EXPECT_EQ(choose_batch_shape(with_job(job)).max_num_batched_tokens, 8192);
}

TEST(BatchShape, StartsAnswersOfOneLengthTogether) {
  for (const JobWork& job : {equal(1024, 128, 128), equal(256, 128, 2048), equal(256, 2048, 128),
                             equal(128, 500, 2000)}) {
    const BatchShape shape = choose_batch_shape(with_job(job));
    EXPECT_EQ(shape.max_num_seqs, job.requests);
    EXPECT_EQ(shape.max_num_batched_tokens, 8192);
  }
}

TEST(BatchShape, OnACpuIsThatOfAServerWhateverTheWork) {
  for (const JobWork& job : {JobWork{}, kChats}) {
    BatchShapeInput input{.weight_bytes = 100 << 20, .job = job};
    EXPECT_EQ(choose_batch_shape(input).max_num_seqs, 64);
    EXPECT_EQ(choose_batch_shape(input).max_num_batched_tokens, 256);
    EXPECT_EQ(choose_batch_shape(input).order, RequestOrder::kArrival);
    input.weight_bytes = 2 * kGiB;
    EXPECT_EQ(choose_batch_shape(input).max_num_batched_tokens, 512);
  }
}

}  // namespace
}  // namespace headrace::batch_shape_test
