// The engine as it runs beside a GPU, on the null device: a token is the random bits of its
// (seed, choice, position), so a row at a wrong place, of a wrong slot or of another sequence
// shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/null_model.h"

namespace headrace {
namespace {

constexpr int32_t kVocabulary = 5000;
constexpr TokenId kEndId = 7;

struct Case {
  bool graphs = false;
  int32_t steps_in_flight = 1;
  int32_t window = 0;
  KvMemoryKind memory = KvMemoryKind::kPaged;
};

ModelSpec spec_of(const Case& c) {
  return {.architecture = "null",
          .vocab_size = kVocabulary,
          .hidden_size = 64,
          .layer_count = 2,
          .query_heads = 4,
          .context_length = 1024,
          .kv = {{.kv_heads = 2, .head_dim = 64, .window = 0},
                 {.kv_heads = 2, .head_dim = 64, .window = c.window}}};
}

// Few pages: sequences are preempted and computed again.
class NullEngine {
 public:
  explicit NullEngine(const Case& c) : model_(spec_of(c)) {
    KvPlan kv = plan_kv(model_.spec(), DType::kBF16, 16);
    const auto blocks = static_cast<int32_t>(40 * kv.groups.size());
    const SchedulerOptions scheduler{.max_num_seqs = 12,
                                     .max_num_batched_tokens = 48,
                                     .max_model_len = 256,
                                     .steps_in_flight_max = c.steps_in_flight,
                                     .groups = kv.groups,
                                     .block_count = blocks,
                                     .end_ids = {kEndId}};
    auto runner = create_model_runner(*device_, model_, std::move(kv),
                                      {.max_num_seqs = 12,
                                       .max_num_batched_tokens = 48,
                                       .max_model_len = 256,
                                       .block_count = blocks,
                                       .kv_memory = c.memory,
                                       .end_ids = {kEndId},
                                       .graphs = c.graphs,
                                       .graphs_at_start = c.graphs});
    EXPECT_TRUE(runner.ok()) << runner.status().message();
    engine_ = Engine::create({.scheduler = scheduler, .vocab_size = kVocabulary},
                             std::move(runner).value())
                  .value();
  }
  Engine& engine() { return *engine_; }

 private:
  const std::unique_ptr<Device> device_ = create_null_device({});
  const NullModel model_;
  std::unique_ptr<Engine> engine_;
};

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
};

// The tokens of every choice of every request, once all have ended.
class Answers {
 public:
  explicit Answers(size_t requests) : answers_(requests), unfinished_(requests) {}
  EmissionSink sink(size_t request, int32_t n) {
    answers_[request].resize(static_cast<size_t>(n));
    return [this, request, left = n](const Emission& emission) mutable {
      Answer& answer = answers_[request][static_cast<size_t>(emission.choice)];
      answer.tokens.insert(answer.tokens.end(), emission.tokens.begin(), emission.tokens.end());
      answer.finish = emission.finish;
      if (emission.finish == FinishReason::kNone || --left > 0) return;
      const std::lock_guard lock(mutex_);
      --unfinished_;
      done_.notify_all();
    };
  }
  const std::vector<std::vector<Answer>>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(60), [&] { return unfinished_ == 0; }));
    return answers_;
  }

 private:
  std::vector<std::vector<Answer>> answers_;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t unfinished_;
};

Answer expected(const Request& request, int32_t choice) {
  Answer answer{.tokens = {}, .finish = FinishReason::kLength};
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    const uint64_t bits =
        counter_hash(*request.sampling.seed, static_cast<uint64_t>(choice),
                     request.prompt.size() + static_cast<size_t>(i), RngPurpose::kSample);
    answer.tokens.push_back(static_cast<TokenId>(bits % kVocabulary));
    if (answer.tokens.back() != kEndId) continue;
    answer.finish = FinishReason::kStop;
    return answer;
  }
  return answer;
}

std::vector<Request> random_requests(Engine& engine) {
  std::vector<Request> requests;
  Rng rng(11);
  for (int i = 0; i < 60; ++i) {
    Request request{.id = engine.next_request_id()};
    request.prompt.resize(static_cast<size_t>(rng.between(1, 90)));
    for (TokenId& token : request.prompt) token = static_cast<TokenId>(rng.below(kVocabulary));
    request.sampling.seed = rng.next();
    request.sampling.max_tokens = static_cast<int32_t>(rng.between(1, 120));
    request.sampling.n = static_cast<int32_t>(rng.between(1, 3));
    if (i % 3 == 0) request.sampling.frequency_penalty = 0.5f;
    if (i % 4 == 0) request.sampling.logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

class EngineOnNullDevice : public ::testing::TestWithParam<Case> {};

TEST_P(EngineOnNullDevice, EachChoiceGetsTheTokensOfItsPlaces) {
  NullEngine host(GetParam());
  const std::vector<Request> requests = random_requests(host.engine());
  Answers answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status status =
        host.engine().submit(requests[i], answers.sink(i, requests[i].sampling.n));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const auto& all = answers.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t choice = 0; choice < all[i].size(); ++choice) {
      const Answer wanted = expected(requests[i], static_cast<int32_t>(choice));
      EXPECT_EQ(all[i][choice].tokens, wanted.tokens) << "request " << i << ", choice " << choice;
      EXPECT_EQ(all[i][choice].finish, wanted.finish);
    }
  }
  EXPECT_GT(host.engine().stats().scheduler.preemptions, 0u);
}

// A null model that looks at the logits it is given.
class LogitProbe final : public Model {
 public:
  explicit LogitProbe(ModelSpec spec) : model_(std::move(spec)) {}

  const ModelSpec& spec() const override { return model_.spec(); }
  DType activation_dtype() const override { return model_.activation_dtype(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes(int32_t, int32_t, int32_t, int32_t) const override { return 0; }
  void embed(OpContext&, const ForwardBatch&, TensorView) const override {}
  void layers(OpContext&, const ForwardBatch&, LayerRange, std::span<const KvLayerView>, TensorView,
              const ForwardTaps&) const override {}
  void head(OpContext&, TensorView, TensorView logits) const override {
    EXPECT_EQ(logits.columns(), spec().vocab_size);
    EXPECT_EQ(logits.row_stride % 256, 0);
    EXPECT_GE(logits.row_stride, logits.columns() * 4);
    EXPECT_LT(logits.row_stride, logits.columns() * 4 + 256);
    // What a product may write of a row is there.
    for (int64_t row = 0; row < logits.rows(); ++row) {
      std::memset(logits.row(row), 0, static_cast<size_t>(logits.row_stride));
    }
    rows_max_ = std::max(rows_max_, logits.rows());
  }
  int64_t rows_max() const { return rows_max_; }

 private:
  const NullModel model_;
  mutable int64_t rows_max_ = 0;
};

// Whatever the vocabulary, rows of logits lie where fast kernels take them.
TEST(LogitRows, StartOnAccessesForEveryVocabulary) {
  for (const int32_t vocabulary : {1, 3, 64, 65, 32001, 49152, 49155}) {
    SCOPED_TRACE(vocabulary);
    const auto device = create_null_device({});
    ModelSpec spec = spec_of({});
    spec.vocab_size = vocabulary;
    const LogitProbe model(spec);
    KvPlan kv = plan_kv(model.spec(), DType::kBF16, 16);
    auto runner = create_model_runner(*device, model, std::move(kv),
                                      {.max_num_seqs = 300,
                                       .max_num_batched_tokens = 300,
                                       .max_model_len = 64,
                                       .block_count = 40});
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    const auto request = std::make_shared<Request>();
    request->prompt.assign(32, 0);
    request->sampling.prompt_logprobs = 0;
    StepPlan plan;
    plan.admitted.push_back({.sequence = SequenceId(1),
                             .slot = SlotId(0),
                             .request = request,
                             .tokens = request->prompt,
                             .blocks = {{.group = 0, .blocks = {BlockId(0), BlockId(1)}}}});
    plan.work.push_back({.sequence = SequenceId(1),
                         .slot = SlotId(0),
                         .first = 0,
                         .count = 32,
                         .rows = LogitRows::kAll,
                         .samples = true});
    plan.token_count = 32;
    const Ticket ticket = (*runner)->submit_forward(plan);
    (*runner)->submit_sample(ticket);
    const auto result = (*runner)->wait(ticket);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(model.rows_max(), 32);
    ASSERT_EQ(result->rows.size(), 1u);
    ASSERT_EQ(result->rows[0].accepted.size(), 1u);
    EXPECT_LT(result->rows[0].accepted[0], vocabulary);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, EngineOnNullDevice,
                         ::testing::Values(Case{}, Case{.graphs = true, .steps_in_flight = 2},
                                           Case{.graphs = true, .steps_in_flight = 2, .window = 64},
                                           Case{.steps_in_flight = 2,
                                                .memory = KvMemoryKind::kContiguous}),
                         [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace headrace
