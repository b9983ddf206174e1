// Steps that are computed side by side, of sequences that none of the others has: on the oracle
// device, whose tokens are wrong where a plan is.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "sched/scheduler.h"
#include "sim/oracle_device.h"

namespace headrace::cohorts_test {
namespace {

constexpr int32_t kStages = 3;

class CohortsTest : public testing::Test {
 protected:
  CohortsTest() {
    options_.max_num_seqs = 8;
    options_.max_num_batched_tokens = 16;
    options_.max_model_len = 128;
    options_.steps_in_flight_max = options_.cohorts.count = kStages;
    options_.groups = {{.block_tokens = 4}};
    options_.block_count = 256;
    options_.end_ids = {0};
    options_.enable_prefix_caching = false;
    begin();
  }

  void begin() {
    scheduler_ = Scheduler::create(options_).value();
    device_ = std::make_unique<OracleDevice>(model_, options_.groups, options_.block_count,
                                             options_.max_num_seqs, options_.tiers);
  }

  void add(uint64_t id, int32_t prompt, int32_t max_tokens) {
    Request request{.id = RequestId(id), .prompt = {}};
    for (int32_t t = 0; t < prompt; ++t) {
      request.prompt.push_back(static_cast<TokenId>(1 + (id * 31 + static_cast<uint64_t>(t)) % 90));
    }
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
  }
  void end_oldest() {
    scheduler_->apply(in_flight_.front(), device_->execute(in_flight_.front()));
    in_flight_.pop_front();
    EXPECT_TRUE(scheduler_->check_invariants().ok());
  }

  void go_on_until_all_decode() {
    for (int i = 0; i < 30; ++i) {
      StepPlan plan = scheduler_->plan();
      if (!plan.empty()) in_flight_.push_back(std::move(plan));
      while (!in_flight_.empty()) end_oldest();
    }
  }

  const OracleModel model_;
  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<OracleDevice> device_;
  std::deque<StepPlan> in_flight_;
};

// Seven sequences are three, three and one.
TEST_F(CohortsTest, StepsInFlightShareTheSequencesOut) {
  for (uint64_t id = 1; id <= 7; ++id) add(id, 2, 60);
  go_on_until_all_decode();
  for (int i = 0; i < kStages; ++i) in_flight_.push_back(scheduler_->plan());
  std::vector<size_t> sizes;
  std::set<SequenceId> seen;
  for (const StepPlan& plan : in_flight_) {
    sizes.push_back(plan.work.size());
    for (const Work& work : plan.work) EXPECT_TRUE(seen.insert(work.sequence).second);
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 3, 1}));
  EXPECT_EQ(seen.size(), 7u);
  end_oldest();
  in_flight_.push_back(scheduler_->plan());  // those of the step that has ended, again
  EXPECT_EQ(in_flight_.back().work.size(), 3u);
}

// A step more may be in flight than there are stages: its sequences are a cohort of their own where
// all cohorts then have enough, else the step has none to decode.
TEST_F(CohortsTest, ThereIsOneMoreWhereEachIsLarge) {
  for (const int32_t enough : {2, 3}) {
    options_.steps_in_flight_max = kStages + 1;
    options_.cohorts = {kStages, enough};
    begin();
    for (uint64_t id = 1; id <= 8; ++id) add(id, 2, 60);
    go_on_until_all_decode();
    std::vector<size_t> sizes;
    for (int i = 0; i <= kStages; ++i) {
      in_flight_.push_back(scheduler_->plan());
      sizes.push_back(in_flight_.back().work.size());
    }
    const auto expected =
        enough == 2 ? std::vector<size_t>{2, 2, 2, 2} : std::vector<size_t>{3, 3, 2, 0};
    EXPECT_EQ(sizes, expected);
    in_flight_.clear();
  }
}

// The chunks of a prompt follow each other without a result between them; its first token is
// waited for.
TEST_F(CohortsTest, ChunksOfAPromptFillThePipeline) {
  add(1, 40, 4);
  for (const int32_t tokens : {16, 16, 8}) {
    in_flight_.push_back(scheduler_->plan());
    EXPECT_EQ(in_flight_.back().token_count, tokens);
  }
  end_oldest();
  EXPECT_TRUE(scheduler_->plan().empty());
  end_oldest();
  EXPECT_TRUE(scheduler_->plan().empty());
  end_oldest();
  EXPECT_EQ(scheduler_->plan().work.size(), 1u);
}

}  // namespace
}  // namespace headrace::cohorts_test
