#include "engine/idle_trials.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace headrace::idle_trials_test {
namespace {

class IdleTrialsTest : public ::testing::Test {
 protected:
  IdleTrials trials(const IdleTrials::Options& options) {
    return IdleTrials(*device_, *stream_, graphs_, padding_, options,
                      [this](const PaddingStep& step) {
                        runs_.emplace_back(step.sequences.size(), step.logit_rows);
                        lone_.push_back(step.lone);
                        runs_with_adapters_ += step.adapters ? 1 : 0;
                        return run();
                      });
  }
  Result<double> run() {
    if (!status_.ok()) return status_;
    return runs_.back().second <= 2 ? 1.0 : 2.0;  // a step of four rows takes longer
  }

  const std::unique_ptr<Device> device_ = create_null_device({});
  const std::unique_ptr<Stream> stream_ = device_->create_stream();
  const PaddingTable padding_ =
      PaddingTable::create(*device_, *stream_, /*page=*/3, /*block_tokens=*/16,
                           /*prompt_tokens=*/32)
          .value();
  StepGraphs graphs_{{1, 2, 4}, [](RecordedSize) -> Result<StepGraphs::Recording> {
                       return StepGraphs::Recording{};
                     }};
  std::vector<std::pair<size_t, int32_t>> runs_;  // sequences, rows of logits
  std::vector<bool> lone_;                        // of these, whether ranks stay apart
  int runs_with_adapters_ = 0;
  Status status_;
};

TEST_F(IdleTrialsTest, EverySizeRunsTwiceAndThoseThatPayAreRecorded) {
  IdleTrials trials = this->trials({.full_steps = false});
  int calls = 1;
  while (*trials.run_one()) ++calls;
  EXPECT_EQ(calls, 6);
  const std::vector<std::pair<size_t, int32_t>> expected = {{1, 1}, {1, 1}, {2, 2},
                                                            {2, 2}, {4, 4}, {4, 4}};
  EXPECT_EQ(runs_, expected);
  // What may load kernels waits for no other rank; what is timed is a whole step.
  EXPECT_EQ(lone_, (std::vector<bool>{true, false, true, false, true, false}));
  EXPECT_EQ(graphs_.sizes(), (std::vector<int32_t>{2, 4}));
  graphs_.wait();
  EXPECT_EQ(graphs_.recorded(), 2);
  EXPECT_FALSE(*trials.run_one());
  EXPECT_EQ(runs_.size(), 6u);
}

TEST_F(IdleTrialsTest, WhereStepsMayHaveAdaptersSizesThatPayAreRecordedTwice) {
  IdleTrials trials = this->trials({.full_steps = false, .adapters = true});
  int calls = 1;
  while (*trials.run_one()) ++calls;
  EXPECT_EQ(calls, 8);
  EXPECT_EQ(runs_with_adapters_, 2);
  EXPECT_EQ(runs_[6], (std::pair<size_t, int32_t>{2, 2}));
  EXPECT_EQ(runs_[7], (std::pair<size_t, int32_t>{4, 4}));
  graphs_.wait();
  EXPECT_EQ(graphs_.recorded(), 4);
  EXPECT_NE(graphs_.find({.rows = 4, .adapters = true}), nullptr);
  EXPECT_FALSE(*trials.run_one());
}

// A full step is tried for the products of a library, which the null device has none of.
TEST_F(IdleTrialsTest, WithoutALibraryNothingIsTimedForIt) {
  IdleTrials trials = this->trials({.gemms = true, .full_steps = true, .step_tokens = 64});
  for (int call = 0; call < 6; ++call) EXPECT_TRUE(*trials.run_one());
  EXPECT_FALSE(*trials.run_one());
  EXPECT_EQ(runs_.size(), 6u);
}

TEST_F(IdleTrialsTest, AStepThatFailsIsTold) {
  IdleTrials trials = this->trials({});
  status_ = exhausted("no memory");
  EXPECT_EQ(trials.run_one().status().message(), "no memory");
  EXPECT_EQ(graphs_.recorded(), 0);
}

}  // namespace
}  // namespace headrace::idle_trials_test
