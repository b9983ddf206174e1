// Penalties of the last tokens alone on CUDA: what the kernels count is what a recount finds, and
// what they draw is the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/rng.h"
#include "ops/cuda_fixture.h"
#include "ops/sampling/device_sample_fixture.h"

namespace headrace::device_sample_window_test {
namespace {

// What a sequence's penalties look at, as the CPU tells its sampling.
struct LookedAt {
  std::vector<TokenId> prompt;  // in no window
  std::vector<TokenCount> counts;

  static LookedAt of(const std::vector<TokenId>& tokens, size_t prompt, size_t window) {
    LookedAt looked;
    size_t first = prompt;
    if (window == 0) {
      looked.prompt.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prompt));
    } else {
      first = tokens.size() - std::min(tokens.size(), window);
    }
    std::map<TokenId, int32_t> counts;
    for (size_t i = first; i < tokens.size(); ++i) ++counts[tokens[i]];
    for (const auto& [token, count] : counts) looked.counts.push_back({token, count});
    return looked;
  }
  void count_in(uint16_t* counted) const {
    for (const TokenId token : prompt) counted[token] |= kTokenInPrompt;
    for (const TokenCount& entry : counts) {
      counted[entry.token] += static_cast<uint16_t>(entry.count);
    }
  }
};

// Sequences with windows of all lengths, and without: the counts that a step leaves are what a
// recount of the tokens finds, and the next step's tokens are the reference's. Beside them are rows
// that count nothing.
TEST(DeviceSample, PenaltiesInWindowsAsTheReference) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr size_t kSequences = 14, kOtherRows = 2, kSteps = 30;  // as many as all kernels take
  for (const int64_t vocabulary : {17, 2001}) {
    SCOPED_TRACE(vocabulary);
    Rng rng(static_cast<uint64_t>(vocabulary));
    const auto drawn_token = [&] { return static_cast<TokenId>(rng.below(17)); };
    SampleReference reference(vocabulary);
    std::vector<std::vector<TokenId>> tokens(kSequences);
    std::vector<size_t> prompts, windows;
    for (std::vector<TokenId>& own : tokens) {
      own.resize(1 + rng.below(50));
      std::ranges::generate(own, drawn_token);
      prompts.push_back(own.size());
      windows.push_back(std::array{0, 1, 2, 3, 16, 64, 1 << 30}[windows.size() % 7]);
    }
    const auto columns = static_cast<size_t>(vocabulary);
    std::vector<uint16_t> counts((kSequences + kOtherRows) * columns);
    for (size_t i = 0; i < kSequences; ++i) {
      LookedAt::of(tokens[i], prompts[i], windows[i]).count_in(counts.data() + i * columns);
    }
    for (size_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(step);
      SampleCall call{.vocabulary = vocabulary, .counts = counts};
      std::vector<TokenId> expected;
      for (size_t i = 0; i < kSequences; ++i) {
        const std::vector<float> logits = random_floats(rng, vocabulary, 2.0f);
        const LookedAt looked = LookedAt::of(tokens[i], prompts[i], windows[i]);
        const SampleRow row{.temperature = 0.0f,
                            .repetition_penalty = i % 3 == 0 ? 1.0f : 1.4f,
                            .presence_penalty = i % 2 == 0 ? 0.5f : -0.25f,
                            .frequency_penalty = i % 4 == 0 ? 0.0f : 0.75f,
                            .prompt = looked.prompt,
                            .output = looked.counts};
        expected.push_back(reference.sample(logits, row).token);
        call.add(logits, row);
        call.rows.back().penalises = 1;
        const size_t window = windows[i], length = tokens[i].size();
        if (window == 0 || window > length) continue;
        // The host may not know yet which token came last.
        const bool in_flight = window == 1 && step % 2 == 0;
        call.rows.back().leaves = in_flight ? kLastLeaves : tokens[i][length - window];
      }
      for (size_t i = 0; i < kOtherRows; ++i) {
        call.add(random_floats(rng, vocabulary, 2.0f), {.temperature = 0.0f});
      }
      for (const std::vector<TokenId>& own : tokens) call.last_tokens.push_back(own.back());
      call.last_tokens.resize(call.rows.size());
      call.run(cuda);
      counts = call.counts;
      std::vector<uint16_t> recounted(counts.size());
      for (size_t i = 0; i < kSequences; ++i) {
        EXPECT_EQ(call.results[i].token, expected[i]) << i;
        tokens[i].push_back(call.results[i].token);
        LookedAt::of(tokens[i], prompts[i], windows[i]).count_in(recounted.data() + i * columns);
      }
      ASSERT_TRUE(counts == recounted);
    }
  }
}

}  // namespace
}  // namespace headrace::device_sample_window_test
