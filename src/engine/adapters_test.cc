// The whole engine with adapters: what a request gets is what it gets alone, whatever runs beside
// it, is preempted or was cached.
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/dummy_lora.h"
#include "models/made_model_fixture.h"

namespace headrace::adapters_test {
namespace {

constexpr int32_t kContext = 96;

struct AdapterCase {
  int32_t blocks = 200;
  int32_t sequences = 12;
  bool caches = true;
  bool proposes = false;  // n-grams
  bool drafts = false;    // trees, by the model without adapters
};

struct Answered {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // to the bit
  int32_t cached = 0;
  friend bool operator==(const Answered& a, const Answered& b) {
    return a.tokens == b.tokens && a.logprobs == b.logprobs;
  }
};

class AdaptedEngine {
 public:
  explicit AdaptedEngine(const AdapterCase& c = {}) {
    const DecoderSpec spec = uniform_decoder(tiny_config());
    std::vector<DummyTensor> tensors;
    for (const TensorSpec& tensor : decoder_tensors(spec)) {
      tensors.push_back({.name = tensor.name, .shape = tensor.shape, .scale = 5.0f});
    }
    weights_ = DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
    ModelLoadOptions load;
    load.adapter_rank_max = 8;
    model_ = load_decoder(spec, *weights_, *device_, load).value();
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const LoraFile file =
          dummy_lora(model_->adapter_sites(), {.rank = 8, .seed = seed, .deviation = 0.2f});
      adapters_.push_back(
          load_lora_adapter(file, model_->adapter_sites(), *device_, {.rank_max = 8}).value());
    }
    if (c.drafts) draft_ = load_decoder(spec, *weights_, *device_, {}).value();
    start(c, model_spec(spec));
  }

  // Of none and of three.
  std::shared_ptr<const Adapter> adapter(int which) const {
    return which == 0 ? nullptr : adapters_[static_cast<size_t>(which - 1)];
  }
  Engine& engine() { return *engine_; }
  void forget_adapters() { adapters_.clear(); }

  std::vector<Answered> answer(const std::vector<Request>& requests) {
    std::vector<std::future<Answered>> futures;
    for (const Request& request : requests) futures.push_back(submit(request));
    std::vector<Answered> answers;
    for (auto& future : futures) answers.push_back(future.get());
    return answers;
  }

  std::future<Answered> submit(Request request) {
    struct State {
      Answered answer;
      std::promise<Answered> promise;
    };
    auto state = std::make_shared<State>();
    auto future = state->promise.get_future();
    request.id = engine_->next_request_id();
    const Status status = engine_->submit(std::move(request), [state](const Emission& emission) {
      Answered& answer = state->answer;
      answer.tokens.insert(answer.tokens.end(), emission.tokens.begin(), emission.tokens.end());
      for (const TokenLogprobs& token : emission.logprobs) answer.logprobs.push_back(token.logprob);
      answer.cached = std::max(answer.cached, emission.cached_tokens);
      if (emission.finish != FinishReason::kNone) state->promise.set_value(answer);
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return future;
  }

 private:
  void start(const AdapterCase& c, const ModelSpec& whole) {
    ModelRunnerOptions options{.max_num_seqs = c.sequences,
                               .max_num_batched_tokens = 24,
                               .max_model_len = kContext,
                               .block_count = c.blocks,
                               .poison_kv = true};
    options.draft = draft_.get();
    const KvPlan kv = plan_kv(kept_spec(whole, options), {KvFormat::kF16}, 16);
    SchedulerOptions scheduler{.max_num_seqs = c.sequences,
                               .max_num_batched_tokens = 24,
                               .max_model_len = kContext,
                               .groups = kv.groups,
                               .block_count = c.blocks,
                               .enable_prefix_caching = c.caches};
    scheduler.admission_headroom = 0;
    if (c.proposes) scheduler.proposals.method = ProposalMethod::kNgram;
    if (c.drafts) {
      scheduler.proposals = {.method = ProposalMethod::kDraftModel,
                             .tokens_max = 3,
                             .tree_width = 3,
                             .tree_tokens = 8,
                             .chance_min = 0,
                             .whatever_they_cost = true};
    }
    auto runner = create_model_runner(*device_, *model_, kv, options);
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    engine_ = Engine::create({.scheduler = scheduler, .vocab_size = whole.vocab_size},
                             std::move(runner).value())
                  .value();
  }

  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<Model> model_, draft_;
  std::vector<std::shared_ptr<const LoraAdapter>> adapters_;
  std::unique_ptr<Engine> engine_;
};

// Long prompts and short ones, greedy ones and sampled.
std::vector<Request> some_requests(const AdaptedEngine& engine, size_t count) {
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    Rng rng(i + 1);
    Request request;
    const auto length = static_cast<int32_t>(rng.between(1, 50));
    for (int32_t t = 0; t < length; ++t)
      request.prompt.push_back(static_cast<TokenId>(rng.below(97)));
    request.sampling.max_tokens = static_cast<int32_t>(rng.between(5, 40));
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = i;
    request.sampling.logprobs = 0;
    request.adapter_weights = engine.adapter(static_cast<int>(i % 4));
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Adapters, AnswersAreThoseOfEachAloneToTheBit) {
  AdaptedEngine alone({.caches = false});
  const std::vector<Request> requests = some_requests(alone, 16);
  std::vector<Answered> expected;
  for (const Request& request : requests) expected.push_back(alone.answer({request}).front());
  for (const AdapterCase& c :
       {AdapterCase{}, AdapterCase{.blocks = 14, .sequences = 6, .caches = false},
        AdapterCase{.blocks = 16, .sequences = 6}, AdapterCase{.proposes = true},
        AdapterCase{.drafts = true}}) {
    AdaptedEngine engine(c);
    const std::vector<Request> same = some_requests(engine, 16);
    const std::vector<Answered> answers = engine.answer(same);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_TRUE(answers[i] == expected[i]) << "request " << i << ", " << c.blocks << " blocks";
    }
    const uint64_t preemptions = engine.engine().stats().scheduler.preemptions;
    EXPECT_TRUE(c.blocks > 20 || preemptions > 0) << preemptions;
    const ProposalStats proposals = engine.engine().stats().scheduler.proposals;
    if (!c.drafts) continue;
    EXPECT_GT(proposals.accepted, 20u);
    EXPECT_GT(proposals.proposed, proposals.verifications * 2);
  }
}

TEST(Adapters, EachAdapterHasAnAnswerOfItsOwn) {
  AdaptedEngine engine;
  Request request = some_requests(engine, 1).front();
  request.sampling.max_tokens = 20;
  std::vector<Answered> answers;
  for (int which = 0; which < 4; ++which) {
    request.adapter_weights = engine.adapter(which);
    answers.push_back(engine.answer({request}).front());
    for (int before = 0; before < which; ++before) {
      EXPECT_NE(answers[static_cast<size_t>(before)].logprobs, answers.back().logprobs);
    }
  }
}

// What one adapter has computed is no other's prefix, and its own it is.
TEST(Adapters, PrefixesAreOfOneAdapter) {
  AdaptedEngine engine;
  Request request;
  for (TokenId token = 0; token < 48; ++token) request.prompt.push_back(token);
  request.sampling.max_tokens = 4;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 0;
  for (const int which : {0, 1, 2}) {
    request.adapter_weights = engine.adapter(which);
    const Answered first = engine.answer({request}).front();
    EXPECT_EQ(first.cached, 0) << which;
    const Answered again = engine.answer({request}).front();
    EXPECT_GE(again.cached, 32) << which;
    EXPECT_TRUE(first == again) << which;
  }
}

TEST(Adapters, ChoicesShareTheirPromptAndItsAdapter) {
  AdaptedEngine engine;
  Request request = some_requests(engine, 2)[1];
  request.sampling.n = 3;
  request.sampling.max_tokens = 6;
  std::vector<std::vector<TokenId>> choices(3);
  std::mutex mutex;
  std::promise<void> end;
  int ended = 0;
  request.id = engine.engine().next_request_id();
  const Status status = engine.engine().submit(request, [&](const Emission& emission) {
    const std::lock_guard lock(mutex);
    auto& tokens = choices[static_cast<size_t>(emission.choice)];
    tokens.insert(tokens.end(), emission.tokens.begin(), emission.tokens.end());
    if (emission.finish != FinishReason::kNone && ++ended == 3) end.set_value();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  end.get_future().wait();
  request.sampling.n = 1;
  EXPECT_EQ(engine.answer({request}).front().tokens, choices[0]);
}

// The request alone keeps it.
TEST(Adapters, ARequestEndsWithTheAdapterThatItBeganWith) {
  AdaptedEngine engine;
  std::vector<Request> requests = some_requests(engine, 8);
  const std::vector<Answered> expected = engine.answer(requests);
  const std::weak_ptr<const Adapter> watched = engine.adapter(1);
  std::vector<std::future<Answered>> futures;
  for (Request& request : requests) futures.push_back(engine.submit(std::move(request)));
  requests.clear();
  engine.forget_adapters();
  for (size_t i = 0; i < futures.size(); ++i) EXPECT_TRUE(futures[i].get() == expected[i]) << i;
  for (int i = 0; i < 2000 && !watched.expired(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Adapters, AModelThatWasLoadedForNoneTakesNone) {
  const auto device = create_cpu_device(1);
  MadeModel made(uniform_decoder(tiny_config()), *device);
  const KvPlan kv = plan_kv(made.model().spec(), {KvFormat::kF16}, 16);
  auto runner = create_model_runner(*device, made.model(), kv,
                                    {.max_num_seqs = 1,
                                     .max_num_batched_tokens = 16,
                                     .max_model_len = kContext,
                                     .block_count = 8});
  ASSERT_TRUE(runner.ok());
  EXPECT_FALSE((*runner)->takes_adapters());
}

}  // namespace
}  // namespace headrace::adapters_test
