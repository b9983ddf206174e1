// The engine as it runs beside a GPU, on the null device: a token is the random bits of its
// (seed, choice, position) and the sum of what its penalties count, so a row at a wrong place, of a
// wrong slot or of another sequence shows, and a token that is counted and should not be.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/null_engine_fixture.h"
#include "engine/rank_meeting.h"

namespace headrace::null_device_test {
namespace {

// A form whose next token depends on all before it: of one class modulo 7, at every fifth place one
// of two tokens, of which the other ends the answer; behind `length` tokens it ends or, where that
// is odd, nothing may come.
class SumMatcher final : public TokenMatcher {
 public:
  explicit SumMatcher(int32_t length) : length_(length) {}
  void fill_mask(std::span<uint32_t> allowed, int32_t) override {
    for (uint32_t& word : allowed) word = 0;
    for (TokenId token = 0; token < kVocabulary; ++token) {
      if (allows(token)) allowed[static_cast<size_t>(token) / 32] |= 1u << token % 32;
    }
  }
  bool only_ends() override { return ended_ || (count_ == length_ && length_ % 2 == 0); }
  void accept(TokenId token) override {
    ended_ = ended_ || token == kEndId;
    sum_ += token;
    ++count_;
  }
  bool allows(TokenId token) const {
    if (ended_) return token == kEndId;
    if (count_ == length_) return token == kEndId && length_ % 2 == 0;
    if (count_ % 5 == 4) return token == kEndId || token == kEndId + 1 + sum_ % 10;
    return token != kEndId && token % 7 == sum_ % 7;
  }

 private:
  const int32_t length_;
  int32_t sum_ = 0, count_ = 0;
  bool ended_ = false;
};

struct SumConstraint final : TokenConstraint {
  explicit SumConstraint(int32_t most) : length(most) {}
  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<SumMatcher>(length);
  }
  const int32_t length;
};

// Of all that stands before a token: each of the prompt once, and each of the answer; in a window
// all that stands there.
int64_t penalty_sum(const Request& request, const std::vector<TokenId>& answer) {
  const SamplingParams& sampling = request.sampling;
  if (!penalises_tokens(sampling)) return 0;
  std::vector<TokenId> counted = request.prompt;
  if (!has_penalty_window(sampling)) {
    std::ranges::sort(counted);
    counted.erase(std::ranges::unique(counted).begin(), counted.end());
  }
  counted.insert(counted.end(), answer.begin(), answer.end());
  if (has_penalty_window(sampling)) {
    const auto window = static_cast<size_t>(sampling.penalty_window);
    const size_t left = counted.size() - std::min(counted.size(), window);
    counted.erase(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(left));
  }
  return std::accumulate(counted.begin(), counted.end(), int64_t{0});
}

// Behind `answer`.
TokenId penalised_token(const Request& request, int32_t choice,
                        const std::vector<TokenId>& answer) {
  const TokenId token = token_at(request, choice, request.prompt.size() + answer.size());
  return static_cast<TokenId>((token + penalty_sum(request, answer)) % kVocabulary);
}

Answer expected_of_form(const Request& request, int32_t choice) {
  SumMatcher form(static_cast<const SumConstraint&>(*request.constraint).length);
  Answer answer{.tokens = {}, .finish = FinishReason::kLength};
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    const bool early =
        i < request.sampling.min_tokens && !request.sampling.ignore_eos && !form.only_ends();
    TokenId token = penalised_token(request, choice, answer.tokens);
    int32_t tried = 0;
    while (tried < kVocabulary && (!form.allows(token) || (early && token == kEndId))) {
      token = (token + 1) % kVocabulary;
      ++tried;
    }
    answer.finish = FinishReason::kDeadEnd;
    if (tried == kVocabulary) return answer;
    answer.tokens.push_back(token);
    form.accept(token);
    answer.finish = FinishReason::kStop;
    if (token == kEndId) return answer;
    answer.finish = FinishReason::kLength;
  }
  return answer;
}

Answer expected(const Request& request, int32_t choice) {
  if (request.constraint != nullptr) return expected_of_form(request, choice);
  Answer answer{.tokens = {}, .finish = FinishReason::kLength};
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    answer.tokens.push_back(penalised_token(request, choice, answer.tokens));
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
    if (i % 3 == 0 || i % 12 == 1) {
      request.sampling.frequency_penalty = 0.5f;
      request.sampling.penalty_window = std::array{-1, 1, 2, 64, 1 << 30}[requests.size() / 3 % 5];
    }
    if (i % 4 == 0) request.sampling.logprobs = 2;
    if (i % 3 == 1) {
      request.constraint =
          std::make_shared<SumConstraint>(static_cast<int32_t>(rng.between(1, 60)));
      request.sampling.min_tokens =
          std::min(request.sampling.max_tokens, static_cast<int32_t>(rng.between(0, 20)));
      request.sampling.ignore_eos = i % 2 == 0;
    }
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
  const SchedulerStats stats = host.engine().stats().scheduler;
  EXPECT_GT(stats.preemptions, 0u);
  // How many are asked for depends on what steps take here: the first are, always.
  EXPECT_EQ(stats.proposals.accepted > 0, GetParam().proposals || GetParam().drafts);
  EXPECT_GE(stats.proposals.proposed, stats.proposals.accepted);
  // A draft draws with the random bits of the place: it is right wherever the answer goes on.
  if (GetParam().drafts) {
    EXPECT_GT(stats.proposals.accepted, 9 * stats.proposals.proposed / 10);
    EXPECT_GT(host.draft().rows_followed(), 1000);
  }
  EXPECT_GT(host.model().rows_followed(), 1000);
}

// What joins beside an answer that is drafted for: many tokens that penalties count, and more logit
// biases than a draft's memory is planned for.
TEST(DraftsOnNullDevice, OthersMayHaveMoreToSayThanADraftHasRoomFor) {
  NullEngine host({.drafts = true});
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request& request = requests.emplace_back(Request{.id = host.engine().next_request_id()});
    request.prompt.assign(i < 5 ? 4 : 230, 1);
    request.sampling = {.max_tokens = i < 5 ? 200 : 20, .ignore_eos = true};
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i == 5) request.sampling.presence_penalty = 0.5f, request.sampling.n = 7;
    for (TokenId id = 0; i > 0 && i < 5 && id < 2000; ++id) {
      request.sampling.logit_bias.emplace_back(id, -1.0f);
    }
  }
  Answers answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(host.engine().submit(requests[i], answers.sink(i, requests[i].sampling.n)).ok());
  }
  const auto& all = answers.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(all[i][0].tokens.size(), static_cast<size_t>(requests[i].sampling.max_tokens)) << i;
  }
  EXPECT_GT(host.engine().stats().scheduler.proposals.proposed, 0u);
}

// Of a search each row's best tokens are 0, 1, ... with one probability, so that all beams go on
// from the first in every step: each but that takes over its pages. Others run beside them.
TEST_P(EngineOnNullDevice, BeamsTakeOverPagesOfOthers) {
  NullEngine host(GetParam());
  std::vector<Request> requests = random_requests(host.engine());
  for (size_t i = 0; i < requests.size(); i += 2) {
    Request& search = requests[i];
    search.constraint = nullptr;
    search.prompt.resize(1 + search.prompt.size() / 3);
    search.beams = {.width = 2 + static_cast<int32_t>(i % 3)};
    search.sampling = {.n = 2, .max_tokens = 1 + search.sampling.max_tokens / 4};
  }
  Answers answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status status =
        host.engine().submit(requests[i], answers.sink(i, requests[i].sampling.n));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const auto& all = answers.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (size_t choice = 0; choice < all[i].size(); ++choice) {
      Answer wanted{.tokens = {}, .finish = FinishReason::kLength};
      if (requests[i].beams) {
        wanted.tokens.assign(static_cast<size_t>(requests[i].sampling.max_tokens), 0);
        wanted.tokens.back() = static_cast<TokenId>(choice);
      } else {
        wanted = expected(requests[i], static_cast<int32_t>(choice));
      }
      EXPECT_EQ(all[i][choice].tokens, wanted.tokens) << "request " << i << ", answer " << choice;
      EXPECT_EQ(all[i][choice].finish, wanted.finish);
    }
  }
  EXPECT_EQ(host.engine().stats().scheduler.blocks_used, 0);
  EXPECT_GT(host.model().rows_followed(), 1000);
}

// A step of a sequence with a form is started before the token that it computes is known: only its
// sampling waits for that.
TEST(FormsOnNullDevice, AMaskIsMadeBesideTheForwardPass) {
  const auto device = create_null_device({});
  const NullModel model(spec_of({}));
  auto runner = create_model_runner(
      *device, model, plan_kv(model.spec(), {KvFormat::kBF16}, 16),
      {.max_num_seqs = 2, .max_num_batched_tokens = 32, .max_model_len = 64, .block_count = 8});
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  const auto request = std::make_shared<Request>();
  request->prompt.assign(3, 0);
  request->sampling.seed = 5;
  request->constraint = std::make_shared<SumConstraint>(40);
  StepPlan prompt, decode;
  prompt.admitted.push_back({.sequence = SequenceId(1),
                             .slot = SlotId(1),
                             .request = request,
                             .tokens = request->prompt,
                             .blocks = {{.group = 0, .blocks = {BlockId(0)}}}});
  prompt.work.push_back(
      {.sequence = SequenceId(1), .slot = SlotId(1), .first = 0, .count = 3, .samples = true});
  prompt.token_count = 3;
  decode.work.push_back(
      {.sequence = SequenceId(1), .slot = SlotId(1), .first = 3, .count = 1, .samples = true});
  decode.token_count = 1;

  const Ticket first = (*runner)->submit_forward(prompt);
  EXPECT_FALSE((*runner)->sample_needs_results(first));
  (*runner)->submit_sample(first);
  const Ticket second = (*runner)->submit_forward(decode);
  EXPECT_TRUE((*runner)->sample_needs_results(second));
  SumMatcher form(40);
  const auto next = [&](Ticket ticket) {
    const auto result = (*runner)->wait(ticket);
    EXPECT_TRUE(result.ok() && result->rows.size() == 1 && result->rows[0].accepted.size() == 1);
    const TokenId token = result->rows[0].accepted[0];
    EXPECT_TRUE(form.allows(token)) << token;
    form.accept(token);
  };
  next(first);
  EXPECT_FALSE((*runner)->sample_needs_results(second));
  (*runner)->submit_sample(second);
  next(second);
}

// A form of which every second matcher finds nothing behind three tokens: of two ranks, which have
// one each, one does.
struct UnequalConstraint final : TokenConstraint {
  std::unique_ptr<TokenMatcher> begin() const override {
    return std::make_unique<SumMatcher>(begun++ % 2 == 0 ? 3 : 40);
  }
  mutable std::atomic<int> begun = 0;
};

// It is the answer's end, and nobody else's.
TEST(FormsOnNullDevice, ADeadEndOfOneRankIsOneOfAll) {
  for (const int32_t steps_in_flight : {1, 2}) {
    NullEngine host({.graphs = true, .steps_in_flight = steps_in_flight, .ranks = 2});
    Answers answers(12);
    std::vector<Request> requests;
    for (size_t i = 0; i < 12; ++i) {
      Request& request = requests.emplace_back(Request{.id = host.engine().next_request_id()});
      request.prompt.assign(5, 0);
      request.sampling.seed = i;
      request.sampling.max_tokens = 30;
      request.sampling.ignore_eos = true;
      if (i % 2 == 0) request.constraint = std::make_shared<UnequalConstraint>();
      ASSERT_TRUE(host.engine().submit(request, answers.sink(i, 1)).ok());
    }
    const auto& all = answers.wait();
    for (size_t i = 0; i < 12; ++i) {
      SCOPED_TRACE(i);
      const bool ends = i % 2 == 0;
      EXPECT_EQ(all[i][0].finish, ends ? FinishReason::kDeadEnd : FinishReason::kLength);
      EXPECT_EQ(all[i][0].tokens.size(), ends ? 3u : 30u);
    }
    EXPECT_TRUE(host.engine().healthy());
  }
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
              LayerTaps) const override {}
  void normalise_rows(OpContext&, TensorView) const override {}
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

// A null model whose hidden rows are the positions of their tokens.
class PositionProbe final : public Model {
 public:
  explicit PositionProbe(ModelSpec spec) : model_(std::move(spec)) {}

  const ModelSpec& spec() const override { return model_.spec(); }
  DType activation_dtype() const override { return model_.activation_dtype(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes(int32_t, int32_t, int32_t, int32_t) const override { return 0; }
  void embed(OpContext& context, const ForwardBatch& batch, TensorView hidden) const override {
    context.stream.call([positions = batch.positions, hidden] {
      for (int64_t row = 0; row < hidden.rows(); ++row) {
        std::memcpy(hidden.row(row), &positions[static_cast<size_t>(row)], sizeof(int32_t));
      }
    });
  }
  void layers(OpContext& context, const ForwardBatch&, LayerRange range,
              std::span<const KvLayerView>, TensorView hidden, LayerTaps taps) const override {
    ++passes_;
    for (int32_t layer = range.first; layer < range.last; ++layer) {
      leave_at_taps(context.stream, taps, layer, hidden);
    }
  }
  void normalise_rows(OpContext&, TensorView) const override {}
  void head(OpContext&, TensorView, TensorView) const override {}
  // Of steps that were recorded or run as they are; a replay is none.
  int64_t passes() const { return passes_; }

 private:
  const NullModel model_;
  mutable std::atomic<int64_t> passes_ = 0;
};

// A step that is replayed leaves its hidden rows, and says when, as one that is not.
TEST(LayerTaps, AreLeftByRecordedSteps) {
  const auto device = create_null_device({});
  const PositionProbe model(spec_of({}));
  const Buffer memory = *device->allocate(48 * 64 * 2);
  std::memset(memory.data(), 0xff, static_cast<size_t>(memory.size()));
  const auto stream = device->create_stream();
  const auto before = stream->create_timer(), reached = stream->create_timer();
  stream->record(*before);
  KvPlan kv = plan_kv(model.spec(), {KvFormat::kBF16}, 16);
  const SchedulerOptions scheduler{.max_num_seqs = 4,
                                   .max_num_batched_tokens = 48,
                                   .max_model_len = 256,
                                   .groups = kv.groups,
                                   .block_count = 40};
  auto runner = create_model_runner(
      *device, model, std::move(kv),
      {.max_num_seqs = 4,
       .max_num_batched_tokens = 48,
       .max_model_len = 256,
       .block_count = 40,
       .graphs_at_start = true,
       .taps = {{.layer = 1,
                 .hidden = TensorView(memory.data(), DType::kBF16, Shape{48, 64}),
                 .reached = reached.get()}}});
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  const auto engine = std::move(Engine::create({.scheduler = scheduler, .vocab_size = kVocabulary},
                                               std::move(runner).value()))
                          .value();
  const int64_t recorded = model.passes();
  EXPECT_GT(recorded, 0);
  Request request{.id = engine->next_request_id()};
  request.prompt.assign(20, 1);
  request.sampling.max_tokens = 30;
  Answers answers(1);
  ASSERT_TRUE(engine->submit(request, answers.sink(0, 1)).ok());
  ASSERT_EQ(answers.wait()[0][0].tokens.size(), 30u);
  EXPECT_EQ(model.passes(), recorded + 1);  // the prompt's; the others are replays
  int32_t position = 0;
  std::memcpy(&position, memory.data(), sizeof(position));
  EXPECT_EQ(position, 20 + 30 - 2);  // of the last token that was computed
  EXPECT_GT(reached->seconds_since(*before), 0.0);
}

// Whatever the vocabulary, rows of logits lie where fast kernels take them.
TEST(LogitRows, StartOnAccessesForEveryVocabulary) {
  for (const int32_t vocabulary : {1, 3, 64, 65, 32001, 49152, 49155}) {
    SCOPED_TRACE(vocabulary);
    const auto device = create_null_device({});
    ModelSpec spec = spec_of({});
    spec.vocab_size = vocabulary;
    const LogitProbe model(spec);
    KvPlan kv = plan_kv(model.spec(), {KvFormat::kBF16}, 16);
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

// The others, which try what pays, do not wait for it.
TEST(RanksOnNullDevices, OneThatFindsNoMemoryIsAnError) {
  for (const size_t poor : {0u, 1u}) {
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<std::unique_ptr<TableProbe>> models;
    std::vector<ModelRank> ranks;
    for (size_t rank = 0; rank < 2; ++rank) {
      const int64_t workspace_bytes = rank == poor ? int64_t{1} << 60 : 0;
      devices.push_back(create_null_device({}));
      models.push_back(std::make_unique<TableProbe>(spec_of({}), workspace_bytes));
      ranks.push_back({devices.back().get(), models.back().get()});
    }
    const auto runner =
        create_model_runner(ranks, plan_kv(models.front()->spec(), {KvFormat::kBF16}, 16),
                            {.max_num_seqs = 4,
                             .max_num_batched_tokens = 32,
                             .max_model_len = 64,
                             .block_count = 8,
                             .graphs_at_start = true});
    EXPECT_EQ(runner.status().code(), StatusCode::kExhausted);
  }
}

// The requests that it has end with a fault, others are told why they are not taken, and it ends in
// order with steps in flight.
TEST(FaultsOnNullDevice, EndTheEnginesWorkAndNothingElse) {
  struct Lost {
    int32_t ranks, stages;
    size_t part;
  };
  for (const Lost& lost : {Lost{1, 1, 0}, Lost{2, 1, 1}, Lost{1, 2, 0}, Lost{1, 2, 1}}) {
    for (const int32_t steps : {1, 2}) {
      for (const int64_t passes : {0, 1, 7}) {
        SCOPED_TRACE(testing::Message() << lost.ranks << " ranks, " << lost.stages << " stages, "
                                        << steps << " steps, " << passes);
        NullEngine null({.steps_in_flight = steps, .ranks = lost.ranks, .stages = lost.stages});
        null.model_of(lost.part).lose_device_after(passes);
        Engine& engine = null.engine();
        EXPECT_TRUE(engine.healthy());
        std::vector<Request> requests = random_requests(engine);
        requests.resize(20);
        Answers answers(requests.size());
        std::vector<bool> taken;
        for (size_t i = 0; i < requests.size(); ++i) {
          requests[i].constraint = nullptr;
          requests[i].sampling.ignore_eos = true;
          requests[i].sampling.max_tokens = 100;
          const int32_t n = requests[i].sampling.n;
          EmissionSink sink = answers.sink(i, n);
          const Status status = engine.submit(requests[i], sink);
          taken.push_back(status.ok());
          if (status.ok()) continue;
          EXPECT_EQ(status.code(), StatusCode::kUnavailable);
          for (int32_t choice = 0; choice < n; ++choice) {
            sink({.request = requests[i].id, .choice = choice, .finish = FinishReason::kAbort});
          }
        }
        EXPECT_TRUE(taken.front());
        const auto& ended = answers.wait();
        for (size_t i = 0; i < ended.size(); ++i) {
          for (const Answer& answer : ended[i]) {
            EXPECT_TRUE(answer.finish == FinishReason::kFault ||
                        answer.finish == FinishReason::kAbort)
                << i;
          }
        }
        EXPECT_EQ(ended.front().front().finish, FinishReason::kFault);
        const std::string why = std::string("the engine has failed: ") + TableProbe::kLost;
        EXPECT_EQ(engine.health().code(), StatusCode::kInternal);
        EXPECT_EQ(engine.health().message(), why);
        const Status refused = engine.submit(requests[0], answers.sink(0, 1));
        EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
        EXPECT_EQ(refused.message(), why);
      }
    }
  }
}

TEST(RankMeeting, EndsWhereOneHasLeft) {
  RankMeeting meeting(3);
  std::vector<double> agreed(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(meeting.largest(rank), 2);
      if (rank == 1) return meeting.leave();
      agreed[static_cast<size_t>(rank)] = meeting.largest(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(agreed[0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(agreed[2], std::numeric_limits<double>::infinity());
  EXPECT_EQ(meeting.largest(0), std::numeric_limits<double>::infinity());
}

INSTANTIATE_TEST_SUITE_P(
    Cases, EngineOnNullDevice,
    ::testing::Values(
        Case{}, Case{.graphs = true, .steps_in_flight = 2},
        Case{.graphs = true, .steps_in_flight = 2, .window = 64},
        Case{.graphs = true, .steps_in_flight = 2, .window = 64, .sliding_layers = 5},
        Case{.window = 64, .sliding_layers = 5},
        Case{.steps_in_flight = 2,
             .window = 64,
             .memory = KvMemoryKind::kVirtual,
             .sliding_layers = 5},
        Case{.steps_in_flight = 2, .memory = KvMemoryKind::kContiguous}, Case{.proposals = true},
        Case{.ranks = 2}, Case{.graphs = true, .steps_in_flight = 2, .window = 64, .ranks = 3},
        Case{.graphs = true, .steps_in_flight = 2, .proposals = true, .ranks = 2},
        Case{.graphs = true, .steps_in_flight = 2, .window = 64, .proposals = true},
        Case{.graphs = true,
             .steps_in_flight = 2,
             .window = 64,
             .sliding_layers = 5,
             .proposals = true},
        Case{.steps_in_flight = 2, .memory = KvMemoryKind::kContiguous, .proposals = true},
        Case{.drafts = true}, Case{.graphs = true, .steps_in_flight = 2, .drafts = true},
        Case{.graphs = true,
             .steps_in_flight = 2,
             .window = 64,
             .sliding_layers = 5,
             .drafts = true},
        Case{.graphs = true, .steps_in_flight = 2, .stages = 2},
        Case{.graphs = true, .steps_in_flight = 3, .window = 64, .sliding_layers = 5, .stages = 2},
        Case{.steps_in_flight = 4, .window = 64, .sliding_layers = 5, .stages = 3},
        Case{.graphs = true,
             .steps_in_flight = 5,
             .memory = KvMemoryKind::kContiguous,
             .sliding_layers = 3,
             .stages = 4}),
    [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace headrace::null_device_test
