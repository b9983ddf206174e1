// The whole engine on a model whose layers are shared out over stages: what requests get is what
// they get of one, whatever is in flight beside them.
#include "engine/staged_runner.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/decoder.h"
#include "models/made_model_fixture.h"

namespace headrace::staged_runner_test {
namespace {

constexpr int32_t kContext = 96, kLayers = 5;

struct Case {
  int32_t stages = 1;
  KvMemoryKind memory = KvMemoryKind::kPaged;
  int32_t threads = 1;     // of each stage
  bool host_tier = false;  // memory below the pool, to which preempted pages go
};

// Of few pages, so that sequences are preempted and computed again.
class StagedEngine {
 public:
  explicit StagedEngine(const Case& c) {
    ModelConfig config = tiny_config();
    config.layers = kLayers;
    const DecoderSpec spec = uniform_decoder(config);
    std::vector<DummyTensor> tensors;
    for (const TensorSpec& tensor : decoder_tensors(spec)) {
      tensors.push_back({.name = tensor.name, .shape = tensor.shape});
    }
    weights_ = DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
    std::vector<ModelRank> ranks;
    for (int32_t s = 0; s < c.stages; ++s) {
      devices_.push_back(create_cpu_device(c.threads));
      ModelLoadOptions load;
      std::optional<LayerRange> layers;
      if (c.stages > 1) {
        layers = {kLayers * s / c.stages, kLayers * (s + 1) / c.stages};
        load.layers = layers;
        load.with_head = s + 1 == c.stages;
      }
      models_.push_back(load_decoder(spec, *weights_, *devices_.back(), load).value());
      ranks.push_back({devices_.back().get(), models_.back().get(), layers});
    }
    start(c, ranks, model_spec(spec));
  }

  Engine& engine() { return *engine_; }

  // The tokens and log-probabilities of each request's choices.
  std::vector<std::vector<std::vector<TokenLogprobs>>> answer(
      const std::vector<Request>& requests) {
    std::vector<std::vector<std::vector<TokenLogprobs>>> answers(requests.size());
    std::vector<std::promise<void>> ends(requests.size());
    std::vector<int32_t> left(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Request request = requests[i];
      request.id = engine_->next_request_id();
      left[i] = request.sampling.n;
      answers[i].resize(static_cast<size_t>(request.sampling.n));
      const Status status = engine_->submit(std::move(request), [&, i](const Emission& emission) {
        auto& answer = answers[i][static_cast<size_t>(emission.choice)];
        answer.insert(answer.end(), emission.logprobs.begin(), emission.logprobs.end());
        if (emission.finish != FinishReason::kNone && --left[i] == 0) ends[i].set_value();
      });
      EXPECT_TRUE(status.ok()) << status.message();
    }
    for (std::promise<void>& end : ends) end.get_future().wait();
    return answers;
  }

 private:
  void start(const Case& c, const std::vector<ModelRank>& ranks, const ModelSpec& whole) {
    const KvPlan kv = plan_kv(whole, {KvFormat::kF16}, 16);
    const bool contiguous = c.memory == KvMemoryKind::kContiguous;
    const int32_t blocks = contiguous ? 4 * kContext / 16 : 12;
    std::vector<std::shared_ptr<KvTiers>> tiers;
    for (const ModelRank& rank : ranks) {
      if (!c.host_tier) continue;
      const KvPlan own = plan_of_rank(kv, rank, ranks.size(), c.memory).value();
      tiers.push_back(KvTiers::create(*rank.device, own.page_bytes, {.host_pages = 64}).value());
    }
    SchedulerOptions scheduler{
        .max_num_seqs = 4,
        .max_num_batched_tokens = 24,
        .max_model_len = kContext,
        .steps_in_flight_max = c.stages,
        .cohorts = {.count = c.stages},
        .groups = kv.groups,
        .block_count = blocks,
        .allocation = contiguous ? KvAllocation::kReserveMax : KvAllocation::kPaged,
        .enable_prefix_caching = !contiguous,
        .tiers = c.host_tier ? std::vector<TierSpec>{{.pages = 64}} : std::vector<TierSpec>{}};
    scheduler.admission_headroom = 0;
    auto runner = create_model_runner(ranks, kv,
                                      {.max_num_seqs = 4,
                                       .max_num_batched_tokens = 24,
                                       .max_model_len = kContext,
                                       .block_count = blocks,
                                       .tiers = std::move(tiers),
                                       .kv_memory = c.memory,
                                       .poison_kv = !contiguous});
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    engine_ = Engine::create({.scheduler = scheduler, .vocab_size = whole.vocab_size},
                             std::move(runner).value())
                  .value();
  }

  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<WeightSource> weights_;
  std::vector<std::unique_ptr<Model>> models_;
  std::unique_ptr<Engine> engine_;
};

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  Rng rng(5);
  for (int i = 0; i < 16; ++i) {
    Request request;
    request.prompt.resize(static_cast<size_t>(rng.between(1, 60)));
    for (TokenId& token : request.prompt) token = static_cast<TokenId>(rng.below(97));
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = rng.next();
    request.sampling.max_tokens = static_cast<int32_t>(rng.between(15, 36));
    request.sampling.logprobs = 0;
    if (i % 5 == 3) request.sampling.n = 2;
    if (i % 5 == 4) request.sampling.repetition_penalty = 1.3f;
    requests.push_back(std::move(request));
  }
  return requests;
}

using Answers = std::vector<std::vector<std::vector<TokenLogprobs>>>;

void expect_same_bits(const Answers& actual, const Answers& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    for (size_t choice = 0; choice < expected[i].size(); ++choice) {
      const auto &got = actual[i][choice], &want = expected[i][choice];
      ASSERT_EQ(got.size(), want.size()) << i;
      for (size_t t = 0; t < got.size(); ++t) {
        EXPECT_EQ(got[t].token, want[t].token) << i << " " << t;
        EXPECT_EQ(got[t].logprob, want[t].logprob) << i << " " << t;
      }
    }
  }
}

TEST(Stages, AnswersAreThoseOfOne) {
  const std::vector<Request> requests = mixed_requests();
  const Answers expected = StagedEngine({}).answer(requests);
  for (const Case& c : {Case{.stages = 2}, Case{.stages = 3, .threads = 2}, Case{.stages = 5},
                        Case{.stages = 2, .memory = KvMemoryKind::kContiguous}}) {
    SCOPED_TRACE(c.stages);
    StagedEngine staged(c);
    expect_same_bits(staged.answer(requests), expected);
    const EngineStats stats = staged.engine().stats();
    if (c.memory == KvMemoryKind::kPaged) {
      EXPECT_GT(stats.scheduler.preemptions, 0u);
    }
    EXPECT_GT(stats.device_seconds_total, 0);      // of stages, on average,
    EXPECT_GT(stats.device_gap_seconds_total, 0);  // and their bubbles
  }
}

// Each stage's part of a page goes below its pool and comes back.
TEST(Stages, PagesOfStagesSwapOutAndIn) {
  const std::vector<Request> requests = mixed_requests();
  const Answers expected = StagedEngine({}).answer(requests);
  StagedEngine swapping({.stages = 3, .host_tier = true});
  expect_same_bits(swapping.answer(requests), expected);
  EXPECT_GT(swapping.engine().stats().scheduler.pages_moved.loaded, 0u);
}

// What is cancelled while its step is between two stages, and what comes behind it in its pages.
TEST(Stages, CancelledRequestsLeaveTheirPages) {
  const std::vector<Request> requests = mixed_requests();
  const Answers expected = StagedEngine({}).answer(requests);
  StagedEngine staged({.stages = 3});
  for (int turn = 0; turn < 20; ++turn) {
    Request doomed = requests[static_cast<size_t>(turn) % requests.size()];
    doomed.id = staged.engine().next_request_id();
    doomed.sampling.max_tokens = 30;
    const RequestId id = doomed.id;
    auto first = std::make_shared<std::promise<void>>();
    auto said = std::make_shared<std::atomic<bool>>(false);
    ASSERT_TRUE(staged.engine()
                    .submit(std::move(doomed),
                            [first, said](const Emission&) {
                              if (!said->exchange(true)) first->set_value();
                            })
                    .ok());
    first->get_future().wait();
    staged.engine().cancel(id);
  }
  expect_same_bits(staged.answer(requests), expected);
}

}  // namespace
}  // namespace headrace::staged_runner_test
