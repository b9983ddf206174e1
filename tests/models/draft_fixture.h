// What tests of drafts share, on a CPU and on a GPU: tiny models, requests, and heads with what
// PyTorch says of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../golden/model_under_test.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/rng.h"

namespace headrace {

inline constexpr const char* kFolder = "tests/data/models";
inline constexpr int32_t kVocab = 96;
inline constexpr int32_t kLength = 64;
inline constexpr int32_t kTokens = 4;  // proposed at a time

inline std::vector<std::string> model_paths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

inline std::string named(const char* model) { return std::string(kFolder) + "/" + model; }

inline StackOptions options_of(const std::string& model) {
  return {.model = model,
          .device = {.choice = DeviceChoice::kCpu, .threads = 2, .batch_invariant = true},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
          .memory = {.max_model_len = kLength}};
}

inline StackOptions with_draft_of(StackOptions options, const std::string& draft) {
  options.draft_model = draft;
  options.engine.scheduler.proposals = {.method = ProposalMethod::kDraftModel,
                                        .tokens_max = kTokens,
                                        .chance_min = 0,
                                        .whatever_they_cost = true};
  return options;
}

inline std::vector<TokenId> random_tokens(Rng& rng, int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.below(kVocab)));
  return tokens;
}

// What all choices of a request were answered.
class ChoicesWatch {
 public:
  static std::map<int32_t, std::vector<TokenId>> ask(Engine& engine, std::vector<TokenId> prompt) {
    const auto watch = std::make_shared<ChoicesWatch>();
    Request request{.id = engine.next_request_id(),
                    .prompt = std::move(prompt),
                    .sampling = {.temperature = 0.8f, .max_tokens = 20, .ignore_eos = true}};
    request.sampling.n = 3;
    request.sampling.seed = 5;
    const Status submitted =
        engine.submit(std::move(request), [watch](const Emission& e) { watch->see(e); });
    CHECK(submitted.ok());
    std::unique_lock lock(watch->mutex_);
    watch->changed_.wait(lock, [&] { return watch->ended_ == 3; });
    return watch->tokens_;
  }

 private:
  void see(const Emission& emission) {
    const std::lock_guard lock(mutex_);
    auto& tokens = tokens_[emission.choice];
    tokens.insert(tokens.end(), emission.tokens.begin(), emission.tokens.end());
    if (emission.finish != FinishReason::kNone) ++ended_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, std::vector<TokenId>> tokens_;
  int ended_ = 0;
};

// Greedy, drawn, and with what changes the choice of tokens.
inline std::vector<TestRequest> requests() {
  std::vector<TestRequest> requests;
  Rng rng(17);
  for (const int32_t length : {1, 5, 16, 23, 31, 44}) {
    SamplingParams sampling{.temperature = 0, .max_tokens = 19, .ignore_eos = true};
    sampling.logprobs = 2;
    switch (requests.size() % 3) {
      case 1:
        sampling.temperature = 0.9f;
        sampling.top_p = 0.9f;
        sampling.seed = requests.size();
        break;
      case 2:
        sampling.logit_bias = {{7, 3.0f}, {90, -2.0f}};
        sampling.min_tokens = 5;
        sampling.ignore_eos = false;
        break;
      default:
        break;
    }
    requests.push_back({.prompt = random_tokens(rng, length), .sampling = sampling});
  }
  return requests;
}

inline void expect_same(const Outcome& a, const Outcome& b, size_t request) {
  EXPECT_EQ(a.tokens, b.tokens) << request;
  EXPECT_EQ(a.finish, b.finish) << request;
  EXPECT_TRUE(std::equal(a.logprobs.begin(), a.logprobs.end(), b.logprobs.begin(), b.logprobs.end(),
                         [](const auto& x, const auto& y) {
                           return std::bit_cast<uint32_t>(x.logprob) ==
                                      std::bit_cast<uint32_t>(y.logprob) &&
                                  x.top == y.top;
                         }))
      << request;
}

// A small pool, in which some wait or are computed twice: a sequence's pages and some more.
inline StackOptions in_few_pages(StackOptions options, ModelUnderTest& roomy, int64_t more) {
  const StackInfo& info = roomy.stack().info();
  const auto groups =
      static_cast<int64_t>(roomy.stack().engine().options().scheduler.groups.size());
  options.batch.max_num_batched_tokens = 16;
  options.memory.kv_cache_memory_bytes =
      groups * (kLength / 16 + more) * (info.kv_bytes / info.block_count);
  options.engine.scheduler.admission_headroom = 0;
  return options;
}

// ---- heads ----

inline constexpr const char* kHeads = "tests/data/drafts";

inline std::string head_named(const std::string& name) { return std::string(kHeads) + "/" + name; }

inline StackOptions with_head(StackOptions options, const std::string& head) {
  options = with_draft_of(std::move(options), head);
  options.engine.scheduler.proposals.method = ProposalMethod::kNone;  // its files say it
  return options;
}

inline std::vector<TokenId> tokens_of(const Json& list) {
  std::vector<TokenId> tokens;
  for (const Json& id : list.as_array()) tokens.push_back(static_cast<TokenId>(id.as_int()));
  return tokens;
}

inline Json expected_of_heads() {
  const auto file = MappedFile::open(head_named("expected.json")).value();
  return parse_json({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()})
      .value();
}

// In fp32 its model's greedy answers, and as many proposals, right ones and verifications as
// PyTorch counts. `options_of`: of a model.
template <class OptionsOf>
void expect_pytorchs(const std::string& head, const OptionsOf& options_of) {
  SCOPED_TRACE(head);
  const Json all = expected_of_heads();
  const Json& of = *all.find(head);
  StackOptions options = options_of(named(of.find("model")->as_string().c_str()));
  options.load.dtype = DType::kF32;
  auto model = ModelUnderTest::load(with_head(options, head_named(head)));
  ASSERT_TRUE(model.ok()) << model.status().message();
  SchedulerStats before = model->stack().engine().stats().scheduler;
  for (const Json& answer : of.find("answers")->as_array()) {
    const std::vector<TokenId> tokens = tokens_of(*answer.find("tokens"));
    const SamplingParams greedy{
        .temperature = 0, .max_tokens = static_cast<int32_t>(tokens.size()), .ignore_eos = true};
    const auto got =
        model->answer(TestRequest{.prompt = tokens_of(*answer.find("prompt")), .sampling = greedy});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(got->tokens, tokens);
    const SchedulerStats stats = model->stack().engine().stats().scheduler;
    const auto since = [](uint64_t now, uint64_t then) { return static_cast<int64_t>(now - then); };
    EXPECT_EQ(since(stats.proposals.proposed, before.proposals.proposed),
              answer.find("proposed")->as_int());
    EXPECT_EQ(since(stats.proposals.accepted, before.proposals.accepted),
              answer.find("accepted")->as_int());
    EXPECT_EQ(since(stats.proposals.verifications, before.proposals.verifications),
              answer.find("verifications")->as_int());
    before = stats;
  }
}

}  // namespace headrace
