// The whole engine on a model that is split over ranks: what requests get is what they get of one.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "engine/rank_threads.h"
#include "models/decoder.h"
#include "models/made_model_fixture.h"

namespace headrace::ranks_test {
namespace {

constexpr int32_t kContext = 96;

TEST(RankThreads, CallsMayWaitForEachOther) {
  RankThreads threads(3);
  for (int call = 0; call < 200; ++call) {
    std::atomic<int> come = 0;
    std::vector<int> ranks(3, -1);
    threads.run([&](int rank) {
      ranks[static_cast<size_t>(rank)] = rank;
      for (++come; come < 3;) std::this_thread::yield();
    });
    EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2}));
  }
}

struct Case {
  int32_t ranks = 1;
  ShardSums sums = ShardSums::kGather;
  KvMemoryKind memory = KvMemoryKind::kPaged;
  int32_t threads = 1;  // of each rank
  std::string kv_save = {};
  bool host_tier = false;  // memory below the pool, to which preempted pages go
  KvFormats formats = {KvFormat::kF16};
};

// Of few pages, so that sequences are preempted and computed again.
class RankedEngine {
 public:
  explicit RankedEngine(const Case& c) {
    ModelConfig config = tiny_config();
    config.kv_heads = 3;  // of 2 ranks one has 2, the other 1
    const DecoderSpec spec = uniform_decoder(config);
    std::vector<DummyTensor> tensors;
    for (const TensorSpec& tensor : decoder_tensors(spec)) {
      tensors.push_back({.name = tensor.name, .shape = tensor.shape});
    }
    weights_ = DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
    std::vector<ModelRank> ranks;
    for (int32_t rank = 0; rank < c.ranks; ++rank) {
      devices_.push_back(create_cpu_device(c.threads));
      ModelLoadOptions load;
      load.shard = {.rank = rank, .ranks = c.ranks, .sums = c.sums};
      models_.push_back(load_decoder(spec, *weights_, *devices_.back(), load).value());
      ranks.push_back({devices_.back().get(), models_.back().get()});
    }
    start(c, ranks, model_spec(spec));
  }

  Engine& engine() { return *engine_; }

  // The tokens of each request.
  std::vector<std::vector<TokenId>> answer(const std::vector<Request>& requests) {
    std::vector<std::vector<TokenId>> answers;
    for (const std::vector<TokenLogprobs>& tokens : answer_with_logprobs(requests)) {
      std::vector<TokenId>& answer = answers.emplace_back();
      for (const TokenLogprobs& token : tokens) answer.push_back(token.token);
    }
    return answers;
  }
  // What the model thinks of them, to the bit.
  std::vector<std::vector<float>> logprobs_of_answers(const std::vector<Request>& requests) {
    std::vector<std::vector<float>> answers;
    for (const std::vector<TokenLogprobs>& tokens : answer_with_logprobs(requests)) {
      std::vector<float>& answer = answers.emplace_back();
      for (const TokenLogprobs& token : tokens) answer.push_back(token.logprob);
    }
    return answers;
  }

  std::vector<std::vector<TokenLogprobs>> answer_with_logprobs(
      const std::vector<Request>& requests) {
    std::vector<std::vector<TokenLogprobs>> answers(requests.size());
    std::vector<std::promise<void>> ends(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Request request = requests[i];
      request.id = engine_->next_request_id();
      request.sampling.logprobs = 0;
      const Status status = engine_->submit(std::move(request), [&, i](const Emission& emission) {
        answers[i].insert(answers[i].end(), emission.logprobs.begin(), emission.logprobs.end());
        if (emission.finish != FinishReason::kNone) ends[i].set_value();
      });
      EXPECT_TRUE(status.ok()) << status.message();
    }
    for (std::promise<void>& end : ends) end.get_future().wait();
    return answers;
  }

 private:
  void start(const Case& c, const std::vector<ModelRank>& ranks, const ModelSpec& whole) {
    const KvPlan kv = plan_kv(whole, c.formats, 16);
    const bool contiguous = c.memory == KvMemoryKind::kContiguous;
    const int32_t blocks = contiguous ? 4 * kContext / 16 : 14;
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
                                       .kv_memory = c.memory});
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    engine_ = Engine::create({.scheduler = scheduler,
                              .vocab_size = whole.vocab_size,
                              .kv_save_path = c.kv_save,
                              .kv_fingerprint = "ranks_test"},
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
  for (int i = 0; i < 12; ++i) {
    Request request;
    request.prompt.resize(static_cast<size_t>(rng.between(1, 60)));
    for (TokenId& token : request.prompt) token = static_cast<TokenId>(rng.below(97));
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = rng.next();
    request.sampling.max_tokens = static_cast<int32_t>(rng.between(5, 30));
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(Ranks, AnswersAreThoseOfOne) {
  const std::vector<Request> requests = mixed_requests();
  const auto expected = RankedEngine({}).answer(requests);
  for (const Case& c : {Case{.ranks = 2}, Case{.ranks = 3, .threads = 2},
                        Case{.ranks = 2, .memory = KvMemoryKind::kContiguous}, Case{.ranks = 6}}) {
    EXPECT_EQ(RankedEngine(c).answer(requests), expected) << c.ranks << " ranks";
  }
}

// Each rank's part of a page goes below its pool and comes back.
TEST(Ranks, PagesOfRanksSwapOutAndIn) {
  const std::vector<Request> requests = mixed_requests();
  const auto expected = RankedEngine({}).answer(requests);
  RankedEngine swapping({.ranks = 2, .host_tier = true});
  EXPECT_EQ(swapping.answer(requests), expected);
  const SchedulerStats stats = swapping.engine().stats().scheduler;
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.pages_moved.loaded, 0u);
}

// Keys and values of 8 bits: whatever runs beside an answer, however its prompt is cut, on ranks
// and through a tier, its tokens have the same probabilities.
TEST(Ranks, KeysAndValuesOf8BitsGiveTheAnswersOfOne) {
  const std::vector<Request> requests = mixed_requests();
  const KvFormats kInt8{KvFormat::kInt8};
  const auto expected = RankedEngine({.formats = kInt8}).logprobs_of_answers(requests);
  EXPECT_NE(expected, RankedEngine({}).logprobs_of_answers(requests));  // they are not floats
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(RankedEngine({.formats = kInt8}).logprobs_of_answers({requests[i]}).front(),
              expected[i])
        << i;
  }
  for (const Case& c : {Case{.ranks = 3, .formats = kInt8},
                        Case{.memory = KvMemoryKind::kContiguous, .formats = kInt8}}) {
    EXPECT_EQ(RankedEngine(c).logprobs_of_answers(requests), expected) << c.ranks << " ranks";
  }
  RankedEngine swapping({.ranks = 2, .host_tier = true, .formats = kInt8});
  EXPECT_EQ(swapping.logprobs_of_answers(requests), expected);
  EXPECT_GT(swapping.engine().stats().scheduler.pages_moved.loaded, 0u);
}

// What a rank looks rows up in stays while the next one packs its part of the same tensor.
TEST(Ranks, TheTableOfATiedHeadStays) {
  const DecoderSpec spec = uniform_decoder(tiny_config());
  std::vector<DummyTensor> tensors;
  for (const TensorSpec& tensor : decoder_tensors(spec)) {
    tensors.push_back({.name = tensor.name, .shape = tensor.shape});
  }
  const auto weights =
      DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
  const auto device = create_cpu_device(1);
  const ConstTensorView before = weights->get("token_embd.weight").value();
  for (int32_t rank = 0; rank < 2; ++rank) {
    ModelLoadOptions load;
    load.shard = {.rank = rank, .ranks = 2};
    ASSERT_TRUE(load_decoder(spec, *weights, *device, load).ok());
  }
  // Memory that is still there is not made again.
  EXPECT_EQ(weights->get("token_embd.weight").value().data, before.data);
}

// Sums of another order may choose other tokens, and every time the same.
TEST(Ranks, SumsOfRanksRepeatThemselves) {
  const std::vector<Request> requests = mixed_requests();
  const Case reduce{.ranks = 3, .sums = ShardSums::kReduce};
  const auto first = RankedEngine(reduce).answer(requests);
  EXPECT_EQ(RankedEngine(reduce).answer(requests), first);
  for (const auto& tokens : first) EXPECT_FALSE(tokens.empty());
}

// What one engine of ranks saved another finds, each rank its own part.
TEST(Ranks, SavedPagesComeBackToTheirRanks) {
  const auto file = std::filesystem::temp_directory_path() / "headrace-ranks-test.kv";
  std::filesystem::remove(file);
  std::vector<Request> requests = mixed_requests();
  requests.resize(1);
  requests[0].prompt.resize(50, 11);
  const Case saves{.ranks = 2, .kv_save = file.string()};
  const auto expected = RankedEngine(saves).answer(requests);  // saved when it ends
  ASSERT_TRUE(std::filesystem::exists(file));
  RankedEngine restored(saves);
  EXPECT_EQ(restored.answer(requests), expected);
  EXPECT_GE(restored.engine().stats().scheduler.prefix_cache_hits, 48u);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace headrace::ranks_test
