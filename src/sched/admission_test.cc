#include "sched/admission.h"

#include <gtest/gtest.h>

#include <memory>

namespace headrace::admission_test {
namespace {

// min(max(1, 0.1 * running), cooldown) finishes.
TEST(AdmissionControl, HoldsAfterAnAllocationFailureUntilEnoughHaveEnded) {
  SchedulerOptions options;
  options.openppl.cooldown_max = 8;
  struct Case {
    int64_t running, finishes;
  };
  for (const auto& [running, finishes] : {Case{1, 1}, Case{19, 1}, Case{35, 3}, Case{500, 8}}) {
    AdmissionControl admission(options);
    EXPECT_FALSE(admission.on_hold());
    admission.allocation_failed(running);
    for (int64_t i = 0; i < finishes; ++i) {
      EXPECT_TRUE(admission.on_hold()) << running << " running, " << i << " ended";
      admission.sequence_ended();
    }
    EXPECT_FALSE(admission.on_hold());
  }
}

TEST(AdmissionControl, ACooldownOfZeroHoldsNobody) {
  SchedulerOptions options;
  options.openppl.cooldown_max = 0;
  AdmissionControl admission(options);
  admission.allocation_failed(100);
  EXPECT_FALSE(admission.on_hold());
}

struct Running {
  explicit Running(const SchedulerOptions& options, int32_t prompt, int32_t max_tokens) {
    Request r;
    r.prompt.resize(static_cast<size_t>(prompt));
    r.sampling.max_tokens = max_tokens;
    sequence = std::make_unique<Sequence>(
        Sequence{.request = std::make_shared<const Request>(std::move(r)),
                 .output = {},
                 .followers = {},
                 .blocks = SequenceBlocks(options.groups),
                 .state = Prefilling{SlotId(0), prompt}});
  }
  std::unique_ptr<Sequence> sequence;
};

// A prompt that has joined and holds nothing yet is owed its pages; a candidate asks for more with
// each time it was preempted.
TEST(AdmissionControl, CountsPromisedPagesAndAMarginAfterPreemptions) {
  SchedulerOptions options;
  options.groups = {{.block_tokens = 4}};
  options.max_model_len = 256;
  options.admission_headroom = 0;
  AdmissionControl admission(options);
  Running first(options, 40, 21);   // 11 pages to sample for the first time, 15 at most
  Running second(options, 20, 41);  // 6 and 15
  Sequence* running[] = {first.sequence.get()};
  EXPECT_EQ(admission.pages_required(*second.sequence, {}), 6);
  EXPECT_EQ(admission.pages_required(*second.sequence, running), 11 + 6);
  second.sequence->preemptions = 1;
  EXPECT_EQ(admission.pages_required(*second.sequence, running), 11 + 6 + 2);
  second.sequence->preemptions = 2;
  EXPECT_EQ(admission.pages_required(*second.sequence, running), 15 + 15);
}

}  // namespace
}  // namespace headrace::admission_test
