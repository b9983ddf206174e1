// Answers of a form in the whole engine: every token is one that the form allows, whatever the
// batch, the pool and the proposals, and also where a sequence was preempted and its matcher made
// anew. The forms of texts are text/grammar's; here a form is a rule on token ids.
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <string>

#include "../golden/model_under_test.h"
#include "base/rng.h"

namespace headrace::constraint_test {
namespace {

constexpr const char* kModel = "tests/data/models/llama";
constexpr int32_t kWords = 96;
constexpr int32_t kAnswer = 40;  // tokens

// Whether a token may follow `count` others, of which `before` is the last.
bool may_follow(TokenId token, TokenId before, size_t count) {
  return mix64(static_cast<uint64_t>(token) * 31 + static_cast<uint64_t>(before) + 977 * count) %
             6 ==
         0;
}

// In three of four places the lowest of those alone may come, which is proposed; also in the
// fourth, where it need not be right. `stuck_at`: behind so many tokens none may come.
class RuleConstraint final : public TokenConstraint {
 public:
  explicit RuleConstraint(size_t stuck_at = SIZE_MAX) : stuck_at_(stuck_at) {}
  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<Matcher>(stuck_at_);
  }

 private:
  class Matcher final : public TokenMatcher {
   public:
    explicit Matcher(size_t stuck_at) : stuck_at_(stuck_at) {}
    void fill_mask(std::span<uint32_t> allowed, int32_t) override {
      std::fill(allowed.begin(), allowed.end(), 0u);
      if (count_ == stuck_at_) return;
      for (TokenId token = lowest(); token < kWords; ++token) {
        if (!may_follow(token, before_, count_)) continue;
        allowed[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
        if (count_ % 4 != 0) return;
      }
    }
    bool only_ends() override { return false; }
    void accept(TokenId token) override {
      before_ = token;
      ++count_;
    }
    void propose(size_t most, std::vector<TokenId>& tokens) override {
      Matcher ahead = *this;
      for (; most > 0 && ahead.count_ != stuck_at_; --most) {
        tokens.push_back(ahead.lowest());
        ahead.accept(tokens.back());
      }
    }
    std::unique_ptr<TokenMatcher> clone() const override {
      return std::make_unique<Matcher>(*this);
    }

   private:
    TokenId lowest() const {
      TokenId token = 0;
      while (!may_follow(token, before_, count_)) ++token;
      return token;
    }

    const size_t stuck_at_;
    TokenId before_ = 0;
    size_t count_ = 0;
  };
  const size_t stuck_at_;
};

StackOptions constrained_options() {
  return {.model = kModel,
          .device = {.choice = DeviceChoice::kCpu, .threads = 2},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
          .memory = {.max_model_len = 160}};
}

std::vector<TestRequest> constrained_requests() {
  std::vector<TestRequest> requests;
  Rng rng(5);
  for (size_t i = 0; i < 8; ++i) {
    TestRequest request;
    for (size_t j = 0; j < 10 + 9 * i; ++j) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kWords)));
    }
    request.sampling = {
        .temperature = i % 2 == 0 ? 0.0f : 1.2f, .max_tokens = kAnswer, .ignore_eos = true};
    request.sampling.seed = i;
    request.sampling.logprobs = 1;
    if (i % 4 == 3) {
      request.sampling.frequency_penalty = 1.5f;
      request.sampling.repetition_penalty = 1.2f;
      request.sampling.logit_bias = {{5, 100.0f}};
      request.sampling.top_p = 0.8f;
    }
    // Free ones run among them.
    if (i != 6) request.constraint = std::make_shared<RuleConstraint>();
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_of_the_form(const std::vector<TokenId>& tokens) {
  TokenId before = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_TRUE(may_follow(tokens[i], before, i)) << i;
    before = tokens[i];
  }
}

TEST(Constraints, HoldInEveryBatchPoolAndWithProposals) {
  StackOptions one_by_one = constrained_options();
  one_by_one.engine.scheduler.proposals.jump_ahead = false;
  auto model = ModelUnderTest::load(one_by_one);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<TestRequest> all = constrained_requests();
  std::vector<Outcome> alone;
  for (const TestRequest& request : all) {
    alone.push_back(model->answer(request).value());
    EXPECT_EQ(alone.back().tokens.size(), static_cast<size_t>(kAnswer));
    EXPECT_EQ(alone.back().finish, FinishReason::kLength);
    if (request.constraint) expect_of_the_form(alone.back().tokens);
  }
  EXPECT_EQ(model->stack().engine().stats().scheduler.proposals.proposed, 0u);
  const StackInfo& info = model->stack().info();
  StackOptions narrow = constrained_options();
  narrow.memory.kv_cache_memory_bytes = 14 * (info.kv_bytes / info.block_count);
  narrow.engine.scheduler.admission_headroom = 0;
  StackOptions proposing = constrained_options();
  proposing.engine.scheduler.proposals = {
      .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
  StackOptions split = constrained_options();
  split.device.tensor_parallel_size = 2;
  for (const StackOptions& options : {constrained_options(), narrow, proposing, split}) {
    auto other = ModelUnderTest::load(options);
    ASSERT_TRUE(other.ok()) << other.status().message();
    const auto together = other->answer(all);
    ASSERT_TRUE(together.ok()) << together.status().message();
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ((*together)[i].tokens, alone[i].tokens) << i;
    EXPECT_GT(other->stack().engine().stats().scheduler.proposals.accepted, 20u);
    const bool is_narrow = options.memory.kv_cache_memory_bytes != 0;
    if (is_narrow) {
      EXPECT_GT(other->stack().engine().stats().scheduler.preemptions, 0u);
    }
  }
}

// Where nothing may come the choice ends with an error, and those beside it go on.
TEST(Constraints, AFormThatIsStuckEndsItsOwnChoice) {
  auto model = ModelUnderTest::load(constrained_options());
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<TestRequest> all = constrained_requests();
  const Outcome alone = model->answer(all[0]).value();
  // Behind tokens that were proposed, too.
  for (const size_t stuck_at : {0, 5, 8, 9, 12}) {
    all[1].constraint = std::make_shared<RuleConstraint>(stuck_at);
    const auto outcomes = model->answer(std::span(all).first(2));
    ASSERT_TRUE(outcomes.ok());
    EXPECT_EQ((*outcomes)[1].finish, FinishReason::kDeadEnd);
    EXPECT_EQ((*outcomes)[1].tokens.size(), stuck_at);
    EXPECT_EQ((*outcomes)[0].tokens, alone.tokens);
  }
}

// Each choice has a matcher of its own, from its first token on.
TEST(Constraints, HoldForEachChoice) {
  auto model = ModelUnderTest::load(constrained_options());
  ASSERT_TRUE(model.ok()) << model.status().message();
  Engine& engine = model->stack().engine();
  EXPECT_TRUE(engine.takes_constraints());
  Request request;
  request.id = engine.next_request_id();
  request.prompt = {1, 2, 3, 4, 5};
  request.sampling = {.temperature = 1.5f, .max_tokens = kAnswer, .ignore_eos = true};
  request.sampling.n = 3;
  request.sampling.seed = 11;
  request.constraint = std::make_shared<RuleConstraint>();
  struct Board {
    std::mutex mutex;
    std::condition_variable done;
    std::array<std::vector<TokenId>, 3> tokens;
    int finished = 0;
  };
  const auto board = std::make_shared<Board>();
  ASSERT_TRUE(engine
                  .submit(std::move(request),
                          [board](const Emission& emission) {
                            const std::lock_guard lock(board->mutex);
                            auto& tokens = board->tokens[static_cast<size_t>(emission.choice)];
                            tokens.insert(tokens.end(), emission.tokens.begin(),
                                          emission.tokens.end());
                            if (emission.finish != FinishReason::kNone) ++board->finished;
                            board->done.notify_all();
                          })
                  .ok());
  std::unique_lock lock(board->mutex);
  board->done.wait(lock, [&] { return board->finished == 3; });
  for (const std::vector<TokenId>& tokens : board->tokens) {
    EXPECT_EQ(tokens.size(), static_cast<size_t>(kAnswer));
    expect_of_the_form(tokens);
  }
  EXPECT_NE(board->tokens[0], board->tokens[1]);
}

}  // namespace
}  // namespace headrace::constraint_test
