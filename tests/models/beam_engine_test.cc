// Beam search in the whole engine: it finds what Hugging Face transformers finds (tests/data/
// beams.json, made by tests/models/make_beam_cases.py), and the same to the bit whatever runs
// beside it, in little memory and in small steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../golden/model_under_test.h"
#include "base/json.h"
#include "base/rng.h"
#include "tensor/device.h"

namespace headrace::beam_engine_test {
namespace {

constexpr const char* kFolder = "tests/data/models";
constexpr int32_t kVocab = 96;  // of all of them
constexpr int32_t kLength = 64;
// What eight beams of the longest case need, and no more: 4 pages each, and one to copy.
constexpr int64_t kPages = 8 * 5;

struct BeamCase {
  std::string model;
  Request request;
  std::vector<std::vector<TokenId>> answers;
  std::vector<double> scores;
};

std::vector<TokenId> tokens_of(const Json& json) {
  std::vector<TokenId> tokens;
  for (const Json& token : json.as_array())
    tokens.push_back(static_cast<TokenId>(token.as_double()));
  return tokens;
}

int32_t number(const Json& json, const char* name) {
  return static_cast<int32_t>(json.find(name)->as_double());
}

std::vector<BeamCase> read_cases() {
  std::ifstream file("tests/data/beams.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<BeamCase> cases;
  const Json all = parse_json(text).value();
  for (const Json& json : all.as_array()) {
    BeamCase& one = cases.emplace_back();
    one.model = json.find("model")->as_string();
    one.request.prompt = tokens_of(*json.find("prompt"));
    one.request.beams = {
        .width = number(json, "width"),
        .length_penalty = static_cast<float>(json.find("length_penalty")->as_double()),
        .early_stopping =
            value_named(kEarlyStoppings, json.find("early_stopping")->as_string()).value()};
    SamplingParams& sampling = one.request.sampling;
    sampling.n = one.request.beams->width;
    sampling.max_tokens = number(json, "max_tokens");
    sampling.min_tokens = number(json, "min_tokens");
    sampling.ignore_eos = true;
    sampling.stop_token_ids = tokens_of(*json.find("ends"));
    for (const Json& answer : json.find("answers")->as_array()) {
      one.answers.push_back(tokens_of(answer));
    }
    for (const Json& score : json.find("scores")->as_array())
      one.scores.push_back(score.as_double());
  }
  return cases;
}

struct Found {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  BeamScore score;
  FinishReason finish = FinishReason::kNone;
};

// Submits requests, of which the answers come in any order.
class Answers {
 public:
  explicit Answers(Engine& engine) : engine_(engine) {}

  RequestId submit(Request request) {
    request.id = engine_.next_request_id();
    const RequestId id = request.id;
    {
      std::lock_guard lock(mutex_);
      order_.push_back(id);
      found_[id].resize(static_cast<size_t>(request.sampling.n));
      open_ += static_cast<size_t>(request.sampling.n);
    }
    const Status status =
        engine_.submit(std::move(request), [this](const Emission& emission) { take(emission); });
    EXPECT_TRUE(status.ok()) << status.message();
    return id;
  }

  // Of each request, in the order of submit().
  std::vector<std::vector<Found>> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return open_ == 0; });
    std::vector<std::vector<Found>> all;
    for (const RequestId id : order_) all.push_back(std::move(found_[id]));
    return all;
  }

 private:
  void take(const Emission& emission) {
    std::lock_guard lock(mutex_);
    if (emission.admitted) return;
    Found& found = found_.at(emission.request).at(static_cast<size_t>(emission.choice));
    found.tokens.insert(found.tokens.end(), emission.tokens.begin(), emission.tokens.end());
    found.logprobs.insert(found.logprobs.end(), emission.logprobs.begin(), emission.logprobs.end());
    if (emission.beam_score) found.score = *emission.beam_score;
    if (emission.finish == FinishReason::kNone) return;
    found.finish = emission.finish;
    if (--open_ == 0) done_.notify_all();
  }

  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<RequestId> order_;
  std::map<RequestId, std::vector<Found>> found_;
  size_t open_ = 0;
};

StackOptions options_of(const std::string& model, DeviceChoice device) {
  return {.model = std::string(kFolder) + "/" + model,
          .device = {.choice = device, .threads = 2, .batch_invariant = true},
          .load = {.dtype = DType::kF32},
          .batch = {.max_num_seqs = 16, .max_num_batched_tokens = 64},
          .memory = {.max_model_len = kLength, .kv_cache_memory_bytes = 64 << 20}};
}

void expect_found(const BeamCase& expected, const std::vector<Found>& found, double error_max) {
  ASSERT_EQ(found.size(), expected.answers.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, expected.answers[i]) << "answer " << i;
    EXPECT_NEAR(found[i].score.score, expected.scores[i],
                error_max * std::max(1.0, std::abs(expected.scores[i])))
        << "answer " << i;
    const bool whole =
        static_cast<int32_t>(found[i].tokens.size()) == expected.request.sampling.max_tokens;
    if (!whole) {
      EXPECT_EQ(found[i].finish, FinishReason::kStop);
    }
  }
}

// All cases of a model at once.
void find_all(DeviceChoice device, double error_max) {
  const std::vector<BeamCase> cases = read_cases();
  ASSERT_GE(cases.size(), 60u);
  std::map<std::string, std::vector<const BeamCase*>> by_model;
  for (const BeamCase& one : cases) by_model[one.model].push_back(&one);
  for (const auto& [name, of_model] : by_model) {
    SCOPED_TRACE(name);
    auto model = ModelUnderTest::load(options_of(name, device));
    ASSERT_TRUE(model.ok()) << model.status().message();
    Answers answers(model->stack().engine());
    for (const BeamCase* one : of_model) answers.submit(one->request);
    const auto found = answers.wait();
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(std::to_string(i) + ": " + std::to_string(of_model[i]->request.beams->width) +
                   " beams");
      expect_found(*of_model[i], found[i], error_max);
    }
    EXPECT_EQ(model->stack().engine().stats().scheduler.blocks_used, 0);
  }
}

TEST(BeamEngine, FindsWhatTransformersFinds) { find_all(DeviceChoice::kCpu, 1e-5); }

TEST(BeamCuda, FindsWhatTransformersFinds) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  find_all(DeviceChoice::kGpu, 1e-3);
}

// A search of each kind, and sampled and greedy answers beside them.
std::vector<Request> mixed_requests(const std::string& model) {
  std::vector<Request> requests;
  for (const BeamCase& one : read_cases()) {
    if (one.model != model) continue;
    requests.push_back(one.request);
    requests.back().sampling.logprobs = static_cast<int32_t>(requests.size() % 3) - 1;
    requests.back().sampling.n =
        1 + static_cast<int32_t>(requests.size()) % one.request.beams->width;
    Request& other = requests.emplace_back();
    other.prompt = one.request.prompt;  // whose pages both share
    other.prompt.push_back(static_cast<TokenId>(requests.size()));
    other.sampling = {.temperature = requests.size() % 4 < 2 ? 0.0f : 0.9f,
                      .seed = requests.size(),
                      .max_tokens = 20,
                      .ignore_eos = true};
    other.sampling.n = requests.size() % 3 == 0 ? 2 : 1;
  }
  return requests;
}

bool same(const std::vector<Found>& a, const std::vector<Found>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Found& x, const Found& y) {
    return x.tokens == y.tokens && x.finish == y.finish && x.score.score == y.score.score &&
           std::equal(x.logprobs.begin(), x.logprobs.end(), y.logprobs.begin(), y.logprobs.end(),
                      [](const TokenLogprobs& p, const TokenLogprobs& q) {
                        return p.token == q.token && p.logprob == q.logprob && p.top == q.top;
                      });
  });
}

// With little memory a search gives way as a whole, and goes on from what it had.
TEST(BeamEngine, NothingBesideItAndNoPreemptionChangesABit) {
  uint64_t preemptions = 0;
  for (const char* name : {"llama", "gemma3"}) {
    SCOPED_TRACE(name);
    const std::vector<Request> requests = mixed_requests(name);
    const StackOptions options = options_of(name, DeviceChoice::kCpu);
    auto roomy = ModelUnderTest::load(options);
    ASSERT_TRUE(roomy.ok()) << roomy.status().message();
    std::vector<std::vector<Found>> alone;
    for (const Request& request : requests) {
      Answers answers(roomy->stack().engine());
      answers.submit(request);
      alone.push_back(answers.wait().front());
    }
    const StackInfo& info = roomy->stack().info();
    const auto groups =
        static_cast<int64_t>(roomy->stack().engine().options().scheduler.groups.size());
    for (const bool proposes : {false, true}) {
      StackOptions narrow_options = options;
      narrow_options.batch = {.max_num_seqs = 40, .max_num_batched_tokens = 48};
      narrow_options.memory.kv_cache_memory_bytes =
          groups * kPages * (info.kv_bytes / info.block_count);
      narrow_options.engine.scheduler.admission_headroom = 0;
      narrow_options.runner.poison_kv = true;
      if (proposes) {
        narrow_options.engine.scheduler.proposals = {
            .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
      }
      auto narrow = ModelUnderTest::load(narrow_options);
      ASSERT_TRUE(narrow.ok()) << narrow.status().message();
      Answers answers(narrow->stack().engine());
      for (const Request& request : requests) answers.submit(request);
      const auto together = answers.wait();
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_TRUE(same(together[i], alone[i])) << "request " << i;
      }
      const SchedulerStats stats = narrow->stack().engine().stats().scheduler;
      preemptions += stats.preemptions;
      EXPECT_EQ(stats.blocks_used, 0);
    }
  }
  std::printf("%lu preemptions\n", preemptions);
  EXPECT_GT(preemptions, 0u);
}

TEST(BeamEngine, ACancelledSearchLeavesNothing) {
  auto model = ModelUnderTest::load(options_of("llama", DeviceChoice::kCpu));
  ASSERT_TRUE(model.ok()) << model.status().message();
  Engine& engine = model->stack().engine();
  const std::vector<BeamCase> cases = read_cases();
  for (size_t round = 0; round < 40; ++round) {
    Answers answers(engine);
    std::vector<RequestId> ids;
    for (size_t i = 0; i < 4; ++i) ids.push_back(answers.submit(cases[(round + i) % 15].request));
    std::this_thread::sleep_for(std::chrono::microseconds(mix64(round) % 4000));
    engine.cancel(ids[round % 4]);
    engine.cancel(ids[(round + 1) % 4]);
    const auto found = answers.wait();
    for (size_t i = 0; i < 4; ++i) {
      if (i == round % 4 || i == (round + 1) % 4) continue;
      expect_found(cases[(round + i) % 15], found[i], 1e-5);
    }
    EXPECT_EQ(engine.stats().scheduler.running, 0);
  }
}

// What a search is not, in one line that names the field.
TEST(BeamEngine, WhatDoesNotGoWithASearchIsRefused) {
  auto model = ModelUnderTest::load(options_of("llama", DeviceChoice::kCpu));
  ASSERT_TRUE(model.ok()) << model.status().message();
  Engine& engine = model->stack().engine();
  const auto refusal = [&](auto change) {
    Request request;
    request.id = engine.next_request_id();
    request.prompt = {5, 6, 7};
    request.beams = {.width = 4};
    request.sampling.max_tokens = 8;
    change(request);
    const Status status = engine.submit(request, [](const Emission&) {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    return std::pair(status.field(), status.message());
  };
  const auto width = refusal([](Request& r) { r.beams->width = 17; });
  EXPECT_EQ(width.first, "beam_width");
  EXPECT_EQ(width.second, "beam_width is 17, more than the 16 sequences that run at once");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.n = 5; }).first, "n");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.max_tokens = 0; }).first, "max_tokens");
  const auto penalty = refusal([](Request& r) { r.sampling.repetition_penalty = 1.1f; });
  EXPECT_EQ(penalty.second, "use_beam_search does not go with repetition_penalty");
  EXPECT_EQ(refusal([](Request& r) {
              r.sampling.logit_bias = {{5, 1.0f}};
            }).first,
            "use_beam_search");
  EXPECT_EQ(refusal([](Request& r) { r.answered = {5}; }).first, "use_beam_search");
}

}  // namespace
}  // namespace headrace::beam_engine_test
