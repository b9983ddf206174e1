// A real model that is split over ranks gives what it gives whole, bit for bit.
#include <algorithm>

#include <gtest/gtest.h>

#include "golden_rows.h"
#include "model_under_test.h"
#include "same_outcome.h"

namespace headrace::ranks_test {
namespace {

// Two prompts at once, one greedy and scored, one sampled.
std::vector<TestRequest> requests_of(const TestModel& model) {
  const auto rows = read_golden_rows("tests/data/golden/generation.jsonl", model.name);
  CHECK(rows.ok());
  std::vector<TestRequest> requests;
  for (const char* id : {"p03", "p07"}) {
    const auto row =
        std::find_if(rows->begin(), rows->end(), [&](const auto& r) { return r.id == id; });
    CHECK(row != rows->end());
    SamplingParams sampling{.temperature = 0, .max_tokens = 12, .ignore_eos = true};
    sampling.logprobs = 5;
    if (requests.empty()) {
      sampling.prompt_logprobs = 5;
    } else {
      sampling.temperature = 0.9f;
      sampling.seed = 17;
    }
    requests.push_back({.prompt = row->prompt, .sampling = sampling});
  }
  return requests;
}

std::vector<Outcome> answers_of(const TestModel& model, int32_t ranks,
                                const std::vector<TestRequest>& requests) {
  StackOptions options;
  options.device.choice = DeviceChoice::kCpu;
  options.device.tensor_parallel_size = ranks;
  // Blocks as BF16 tiles of AMX have other bits in steps of other rows.
  options.device.batch_invariant = true;
  auto loaded = ModelUnderTest::load(model, std::move(options));
  CHECK_MSG(loaded.ok(), loaded.status().message().c_str());
  return loaded->answer(requests).value();
}

class Ranks : public testing::TestWithParam<TestModel> {};

TEST_P(Ranks, GiveTheBitsOfOne) {
  const std::vector<TestRequest> requests = requests_of(GetParam());
  const std::vector<Outcome> whole = answers_of(GetParam(), 1, requests);
  for (const int32_t ranks : {2, 4}) {
    const std::vector<Outcome> split = answers_of(GetParam(), ranks, requests);
    ASSERT_EQ(split.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].tokens.size(), 12u);
      expect_same(split[i], whole[i], std::to_string(ranks) + " ranks");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RealModels, Ranks, testing::Values(kSmolLm2, kGemma3, kQwen2),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace headrace::ranks_test
