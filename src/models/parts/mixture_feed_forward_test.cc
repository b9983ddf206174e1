#include "models/parts/mixture_feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <thread>
#include <vector>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"
#include "tensor/thread_ranks.h"

namespace headrace::mixture_feed_forward_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kExperts = 7, kUsed = 3, kWidth = 20, kSharedWidth = 36;

MixtureSpec mixture(SharedExpert shared) {
  return {.router = {.experts = kExperts, .used = kUsed, .normalised = true, .shared = shared},
          .width = kWidth,
          .shared_width = shared == SharedExpert::kNone ? 0 : kSharedWidth};
}

// Some without gates: Nemotron-H's.
MixtureSpec with_gates(MixtureSpec spec, bool gated) {
  spec.gated = gated;
  if (!gated) spec.activation = Activation::kReluSquared;
  return spec;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Matrix `index` of a stack.
std::vector<float> matrix_of(const std::vector<float>& stack, int64_t index, int64_t size) {
  return {stack.begin() + index * size, stack.begin() + (index + 1) * size};
}

// Without a gate of squared ReLU.
Row network(const std::vector<float>& gate, const std::vector<float>& up,
            const std::vector<float>& down, const Row& x, const GateLimits& limits) {
  if (gate.empty()) {
    Row plain = times(up, x);
    for (double& value : plain) value = value > 0 ? value * value : 0;
    return times(down, plain);
  }
  Row inner = times(gate, x);
  const Row by = times(up, x);
  for (size_t i = 0; i < inner.size(); ++i) {
    const double gate = limits.gate > 0 ? std::min(inner[i], double{limits.gate}) : inner[i];
    const double up =
        limits.up > 0 ? std::clamp(by[i], -double{limits.up}, double{limits.up}) : by[i];
    inner[i] = gate * sigmoid(gate) * up;
  }
  return times(down, inner);
}

// `given`: the row's experts, or none where the router chooses.
Row expected_row(const MixtureSpec& spec, const MadeTensors& tensors, const Row& x,
                 const std::vector<int32_t>& given = {}) {
  const Row logits = times(tensors.values("ffn_gate_inp.weight"), x);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  order.resize(kUsed);
  if (!given.empty()) order = given;
  double sum = 0;
  for (const int32_t e : order) sum += std::exp(logits[static_cast<size_t>(e)]);
  Row y = x;
  const auto add = [&](double weight, const Row& out) {
    for (size_t i = 0; i < y.size(); ++i) y[i] += weight * out[i];
  };
  for (const int32_t e : order) {
    const auto of_expert = [&](const std::string& name) {
      if (!spec.gated && name == "ffn_gate") return std::vector<float>();
      return matrix_of(tensors.values(name + "_exps.weight"), e, kWidth * kHidden);
    };
    const double weight = std::exp(logits[static_cast<size_t>(e)]) / sum;
    if (e >= spec.computing()) {
      add(weight, x);
      continue;
    }
    Row input = x;
    if (spec.scales_input) {
      for (double& value : input) value *= weight;
    }
    add(spec.scales_input ? 1.0 : weight, network(of_expert("ffn_gate"), of_expert("ffn_up"),
                                                  of_expert("ffn_down"), input, spec.limits));
  }
  if (spec.router.shared == SharedExpert::kNone) return y;
  const bool gated = spec.router.shared == SharedExpert::kGated;
  add(gated ? sigmoid(times(tensors.values("ffn_gate_inp_shexp.weight"), x)[0]) : 1.0,
      network(spec.gated ? tensors.values("ffn_gate_shexp.weight") : std::vector<float>(),
              tensors.values("ffn_up_shexp.weight"), tensors.values("ffn_down_shexp.weight"), x,
              spec.shared_limits));
  return y;
}

// Of rows that are scaled before experts read them, beside a shared expert that reads them as they
// are, or none.
TEST(MixtureFeedForward, ScalesWhatExpertsReadAsPlainLoopsDo) {
  for (const auto shared : {SharedExpert::kNone, SharedExpert::kWhole}) {
    for (const int64_t count : {1, 9, 300}) {
      for (const bool as_on_gpu : {false, true}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(shared) << " " << count);
        MixtureSpec spec = mixture(shared);
        spec.scales_input = true;
        PartPass pass(count, kHidden, /*in_place=*/!as_on_gpu);
        MadeTensors tensors(pass.device());
        if (as_on_gpu) tensors.pose_as_gpu();
        const auto part = make_part(spec, kHidden);
        ASSERT_TRUE(part->load(tensors).ok());
        Rng rng(3);
        TestMatrix x(rng, count, kHidden);
        Rows expected = rows_of(x);
        for (Row& row : expected) row = expected_row(spec, tensors, row);
        pass.run(*part, x);
        EXPECT_TRUE(rows_close(x, expected));
        EXPECT_LE(pass.context().workspace.high_water(),
                  part->op_workspace_bytes({.rows = count, .thread_count = 2}));
      }
    }
  }
}

// Of two experts that every row takes: weights are shares of the sum of the scores of these and of
// those chosen.
TEST(MixtureFeedForward, SharedExpertsMayHaveScores) {
  constexpr int32_t kShared = 2, kChosen = kExperts - kShared;
  for (const bool as_on_gpu : {false, true}) {
    MixtureSpec spec = mixture(SharedExpert::kNone);
    spec.router.scores = RouterScores::kSigmoid;
    spec.router.scale = 2.5f;
    spec.scored_shared = kShared;
    spec.choice_bias = true;
    constexpr int64_t kCount = 40;
    PartPass pass(kCount, kHidden, /*in_place=*/!as_on_gpu);
    MadeTensors tensors(pass.device());
    if (as_on_gpu) tensors.pose_as_gpu();
    const auto part = make_part(spec, kHidden);
    ASSERT_TRUE(part->load(tensors).ok());
    Rng rng(3);
    TestMatrix x(rng, kCount, kHidden);
    Rows expected = rows_of(x);
    for (Row& row : expected) {
      const Row input = row, logits = times(tensors.values("ffn_gate_inp.weight"), input);
      const std::vector<float>& bias = tensors.values("exp_probs_b.bias");
      const auto preference = [&](size_t e) { return sigmoid(logits[e]) + bias[e]; };
      size_t best = 0;
      for (size_t e = 1; e < kChosen; ++e) best = preference(e) > preference(best) ? e : best;
      const std::vector<size_t> all = {best, kChosen, kChosen + 1};
      double sum = 0;
      for (const size_t e : all) sum += sigmoid(logits[e]);
      for (const size_t e : all) {
        const bool shared = e >= kChosen;
        const auto matrix = [&](const std::string& name) {
          return matrix_of(tensors.values(name + (shared ? "_shexps.weight" : "_exps.weight")),
                           static_cast<int64_t>(shared ? e - kChosen : e), kWidth * kHidden);
        };
        const Row out =
            network(matrix("ffn_gate"), matrix("ffn_up"), matrix("ffn_down"), input, {});
        for (size_t i = 0; i < row.size(); ++i) row[i] += 2.5 * sigmoid(logits[e]) / sum * out[i];
      }
    }
    pass.run(*part, x);
    EXPECT_TRUE(rows_close(x, expected));
  }
}

// A row's token stands in what is carried; each token has experts of its own.
TEST(MixtureFeedForward, ExpertsMayBeThoseOfTheToken) {
  constexpr int32_t kVocab = 40;
  constexpr int64_t kColumn = 2;
  MixtureSpec spec = mixture(SharedExpert::kWhole);
  spec.by_token = {.vocab = kVocab, .column = kColumn};
  std::vector<float> table;
  for (int32_t i = 0; i < kVocab * kUsed; ++i)
    table.push_back(static_cast<float>(i * 4 % kExperts));
  for (const int64_t count : {1, 9, 300}) {
    PartPass pass(count, kHidden, /*in_place=*/true);
    MadeTensors tensors(pass.device());
    tensors.set("ffn_gate_tid2eid.weight", table);
    const auto part = make_part(spec, kHidden);
    ASSERT_TRUE(part->load(tensors).ok());
    Rng rng(3);
    TestMatrix x(rng, count, kHidden), carried(count, kColumn + 1);
    Rows expected = rows_of(x);
    for (int64_t t = 0; t < count; ++t) {
      const auto token = static_cast<int32_t>(t * 7 % kVocab);
      carried.at(t, kColumn) = std::bit_cast<float>(token);
      std::vector<int32_t> experts;
      for (int32_t i = 0; i < kUsed; ++i) experts.push_back((token * kUsed + i) * 4 % kExperts);
      Row& row = expected[static_cast<size_t>(t)];
      row = expected_row(spec, tensors, row, experts);
    }
    pass.run(*part, x, carried.view());
    EXPECT_TRUE(rows_close(x, expected));
    EXPECT_LE(pass.context().workspace.high_water(),
              part->op_workspace_bytes({.rows = count, .thread_count = 2}));
  }
}

// A table is of whole numbers of experts, no two of a token alike.
TEST(MixtureFeedForward, ATableThatNamesNoExpertsIsRefused) {
  MixtureSpec spec = mixture(SharedExpert::kNone);
  spec.by_token = {.vocab = 2, .column = 0};
  for (const float wrong : {7.0f, -1.0f, 1.5f, 2.0f}) {
    PartPass pass(1, kHidden, /*in_place=*/true);
    MadeTensors tensors(pass.device());
    tensors.set("ffn_gate_tid2eid.weight", {0, 1, 2, 3, 2, wrong});
    const Status status = make_part(spec, kHidden)->load(tensors);
    EXPECT_NE(status.message().find("tensor ffn_gate_tid2eid.weight: "), std::string::npos);
    EXPECT_NE(status.message().find("is no whole number below 7, or twice in a row"),
              std::string::npos);
  }
}

// 300 rows: more than a network takes at a time.
TEST(MixtureFeedForward, EqualsPlainLoops) {
  for (const auto shared : {SharedExpert::kNone, SharedExpert::kWhole, SharedExpert::kGated}) {
    for (const int64_t count : {1, 9, 300}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(shared) << " " << count);
        const MixtureSpec spec = with_gates(mixture(shared), in_place);
        PartPass pass(count, kHidden, in_place);
        MadeTensors tensors(pass.device());
        const auto part = make_part(spec, kHidden);
        ASSERT_TRUE(part->load(tensors).ok());
        Rng rng(3);
        TestMatrix x(rng, count, kHidden);
        Rows expected = rows_of(x);
        for (Row& row : expected) row = expected_row(spec, tensors, row);
        pass.run(*part, x);
        EXPECT_TRUE(rows_close(x, expected));
      }
    }
  }
}

// The ops that a GPU runs, by their references, in the memory that is planned for them.
TEST(MixtureFeedForward, InTheStacksOfAGpuItEqualsPlainLoops) {
  for (const auto shared : {SharedExpert::kNone, SharedExpert::kWhole, SharedExpert::kGated}) {
    for (const int64_t count : {1, 9, 300}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(shared) << " " << count);
      const MixtureSpec spec = with_gates(mixture(shared), count != 9);
      PartPass pass(count, kHidden, /*in_place=*/false);
      MadeTensors tensors(pass.device());
      tensors.pose_as_gpu();
      const auto part = make_part(spec, kHidden);
      ASSERT_TRUE(part->load(tensors).ok());
      EXPECT_EQ(part->matrices().size(), shared == SharedExpert::kNone ? 3u : 5u);
      EXPECT_TRUE(part->scratch_columns(false).empty());
      Rng rng(3);
      TestMatrix x(rng, count, kHidden);
      Rows expected = rows_of(x);
      for (Row& row : expected) row = expected_row(spec, tensors, row);
      pass.run(*part, x);
      EXPECT_TRUE(rows_close(x, expected));
      EXPECT_LE(pass.context().workspace.high_water(),
                part->op_workspace_bytes({.rows = count, .thread_count = 2}));
    }
  }
}

// What ranks make of x, each on a thread and of its own part of the same tensors: all the same.
TestMatrix on_ranks(const MixtureSpec& spec, ShardSpec shard, bool as_on_gpu, const TestMatrix& x) {
  const ThreadRanks group(shard.ranks);
  std::vector<TestMatrix> results(static_cast<size_t>(shard.ranks), x);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < shard.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ShardSpec own = shard;
      own.rank = rank;
      PartPass pass(x.rows(), kHidden, /*in_place=*/!as_on_gpu);
      pass.context().mesh.tensor = &group.rank(rank);
      MadeTensors tensors(pass.device());
      if (as_on_gpu) tensors.pose_as_gpu();
      const auto part = make_part(spec, kHidden);
      EXPECT_TRUE(part->split(own).ok());
      EXPECT_TRUE(part->load(tensors).ok());
      pass.run(*part, results[static_cast<size_t>(rank)]);
      EXPECT_LE(pass.context().workspace.high_water(),
                part->op_workspace_bytes({.rows = x.rows(), .thread_count = 2}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TestMatrix& other : results) EXPECT_TRUE(rows_close(other, rows_of(results[0]), 0));
  return results[0];
}

// Seven experts on two ranks are three and four, on three two, two and three.
TEST(MixtureFeedForward, RanksOfWholeExpertsGatherTheBitsOfOne) {
  for (const auto shared : {SharedExpert::kNone, SharedExpert::kWhole, SharedExpert::kGated}) {
    for (const int64_t count : {1, 9, 300}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(shared) << " " << count);
      MixtureSpec spec = mixture(shared);
      spec.bias = shared == SharedExpert::kNone;
      PartPass pass(count, kHidden, /*in_place=*/true);
      MadeTensors tensors(pass.device());
      const auto whole = make_part(spec, kHidden);
      ASSERT_TRUE(whole->load(tensors).ok());
      Rng rng(3);
      const TestMatrix x(rng, count, kHidden);
      TestMatrix expected = x;
      pass.run(*whole, expected);
      for (const int32_t ranks : {2, 3, 7}) {
        const ShardSpec gather{.ranks = ranks, .whole_experts = true};
        EXPECT_TRUE(rows_close(on_ranks(spec, gather, false, x), rows_of(expected), 0)) << ranks;
        const ShardSpec reduce{.ranks = ranks, .sums = ShardSums::kReduce, .whole_experts = true};
        EXPECT_TRUE(rows_close(on_ranks(spec, reduce, false, x), rows_of(expected))) << ranks;
      }
    }
  }
}

// The ops that a GPU runs, by their references.
TEST(MixtureFeedForward, RanksOfWholeExpertsInTheStacksOfAGpuEqualOne) {
  for (const auto shared : {SharedExpert::kNone, SharedExpert::kWhole, SharedExpert::kGated}) {
    for (const int64_t count : {1, 60}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(shared) << " " << count);
      MixtureSpec spec = mixture(shared);
      spec.bias = shared == SharedExpert::kNone;
      PartPass pass(count, kHidden, /*in_place=*/true);
      MadeTensors tensors(pass.device());
      const auto whole = make_part(spec, kHidden);
      ASSERT_TRUE(whole->load(tensors).ok());
      Rng rng(3);
      const TestMatrix x(rng, count, kHidden);
      TestMatrix expected = x;
      pass.run(*whole, expected);
      for (const bool whole_experts : {false, true}) {
        const ShardSpec shard{
            .ranks = 3, .sums = ShardSums::kReduce, .whole_experts = whole_experts};
        EXPECT_TRUE(rows_close(on_ranks(spec, shard, true, x), rows_of(expected)));
      }
    }
  }
}

// Nine experts, of which the last four have no network: alone, and on ranks that share these or
// have some of the others. Which rank adds such rows is no matter of the sum.
TEST(MixtureFeedForward, ExpertsWithoutNetworksGiveBackTheirRows) {
  MixtureSpec spec = mixture(SharedExpert::kNone);
  spec.router.experts = 9;
  spec.identities = 4;
  for (const int64_t count : {1, 9, 300}) {
    for (const bool as_on_gpu : {false, true}) {
      SCOPED_TRACE(testing::Message() << count << " " << as_on_gpu);
      PartPass pass(count, kHidden, /*in_place=*/!as_on_gpu);
      MadeTensors tensors(pass.device());
      if (as_on_gpu) tensors.pose_as_gpu();
      const auto part = make_part(spec, kHidden);
      ASSERT_TRUE(part->load(tensors).ok());
      EXPECT_EQ(tensors.values("ffn_down_exps.weight").size(), size_t{5} * kWidth * kHidden);
      Rng rng(3);
      const TestMatrix x(rng, count, kHidden);
      Rows expected = rows_of(x);
      for (Row& row : expected) row = expected_row(spec, tensors, row);
      TestMatrix made = x;
      pass.run(*part, made);
      EXPECT_TRUE(rows_close(made, expected));
      EXPECT_LE(pass.context().workspace.high_water(),
                part->op_workspace_bytes({.rows = count, .thread_count = 2}));
      for (const bool whole_experts : {false, true}) {
        const ShardSpec reduce{
            .ranks = 3, .sums = ShardSums::kReduce, .whole_experts = whole_experts};
        EXPECT_TRUE(rows_close(on_ranks(spec, reduce, as_on_gpu, x), expected));
        if (as_on_gpu) continue;
        const ShardSpec gather{.ranks = 3, .whole_experts = whole_experts};
        EXPECT_TRUE(rows_close(on_ranks(spec, gather, false, x), rows_of(made), 0));
      }
    }
  }
}

// Of experts, of the shared one, and of both; alone, and on ranks that share them.
TEST(MixtureFeedForward, GatesAndUpsHaveLimits) {
  for (const auto& [limits, shared_limits] :
       {std::pair(GateLimits{.gate = 0.3f, .up = 0.5f}, GateLimits{}),
        {GateLimits{}, GateLimits{.gate = 0.2f, .up = 0.4f}},
        {GateLimits{.gate = 0.3f}, GateLimits{.up = 0.4f}}}) {
    MixtureSpec spec = mixture(SharedExpert::kWhole);
    spec.limits = limits;
    spec.shared_limits = shared_limits;
    PartPass pass(9, kHidden, /*in_place=*/true);
    MadeTensors tensors(pass.device());
    const auto part = make_part(spec, kHidden);
    ASSERT_TRUE(part->load(tensors).ok());
    Rng rng(3);
    const TestMatrix x(rng, 9, kHidden);
    Rows expected = rows_of(x), unlimited = expected;
    for (Row& row : expected) row = expected_row(spec, tensors, row);
    for (Row& row : unlimited) row = expected_row(mixture(SharedExpert::kWhole), tensors, row);
    TestMatrix made = x;
    pass.run(*part, made);
    EXPECT_TRUE(rows_close(made, expected));
    EXPECT_FALSE(rows_close(made, unlimited));
    for (const bool whole_experts : {false, true}) {
      const ShardSpec shard{.ranks = 3, .whole_experts = whole_experts};
      EXPECT_TRUE(rows_close(on_ranks(spec, shard, false, x), rows_of(made), 0));
    }
    DeviceTraits gpu;
    gpu.kind = DeviceKind::kCuda;
    EXPECT_EQ(part->check_device(gpu, DType::kBF16).message(),
              "experts whose gates have a limit have no kernels on a GPU yet: use --device cpu");
  }
}

TEST(MixtureFeedForward, FewerExpertsThanRanksAreRefused) {
  const auto part = make_part(mixture(SharedExpert::kNone), kHidden);
  const Status refused = part->split({.ranks = 8, .whole_experts = true});
  EXPECT_EQ(refused.message(),
            "a mixture of 7 experts cannot be split over 8 ranks: lower --tensor-parallel-size");
  EXPECT_TRUE(part->split({.ranks = 8}).ok());
}

TEST(MixtureFeedForward, ARowsBitsDoNotDependOnTheOthers) {
  PartPass pass(40, kHidden, /*in_place=*/true), one(1, kHidden, /*in_place=*/true);
  MadeTensors tensors(pass.device());
  const auto part = make_part(mixture(SharedExpert::kGated), kHidden);
  ASSERT_TRUE(part->load(tensors).ok());
  Rng rng(3);
  const TestMatrix rows(rng, 40, kHidden);
  TestMatrix together = rows;
  pass.run(*part, together);
  for (int64_t t = 0; t < 40; ++t) {
    TestMatrix alone(1, kHidden);
    for (int64_t i = 0; i < kHidden; ++i) alone.at(0, i) = rows.at(t, i);
    one.run(*part, alone);
    EXPECT_TRUE(same_bits(&alone.at(0, 0), &together.at(t, 0), kHidden)) << t;
  }
}

TEST(MixtureFeedForward, AsksForItsTensorsInTheOrderOfFiles) {
  TestDevice one = TestDevice::cpu(1);
  MadeTensors made(one.device());
  MixtureSpec spec = mixture(SharedExpert::kGated);
  spec.choice_bias = true;
  const auto part = make_part(spec, kHidden);
  ASSERT_TRUE(part->load(made).ok());
  EXPECT_EQ(made.names(),
            (std::vector<std::string>{
                "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "exp_probs_b.bias",
                "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
                "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"}));
  EXPECT_EQ(part->matrices().size(), 1u + 2 * (kExperts + 1));
}

// In a model, whose workspace is planned: a layer of it behind one of the usual kind.
TEST(MixtureFeedForward, RunsInADecoder) {
  DecoderSpec spec = uniform_decoder(tiny_config());
  spec.layers[1].feed_forward = mixture(SharedExpert::kGated);
  const auto device = create_cpu_device(2);
  const MadeModel made(spec, *device);
  const auto whole = made.run({60});
  EXPECT_EQ(made.run({7, 16, 1, 1, 20, 15}).logits, whole.logits);
  std::vector<std::string> stacks;
  for (const TensorSpec& tensor : decoder_tensors(spec)) {
    if (tensor.shape.rank() == 3) stacks.push_back(tensor.name + " " + tensor.shape.to_string());
  }
  EXPECT_EQ(stacks, (std::vector<std::string>{"blk.1.ffn_gate_exps.weight [7, 20, 48]",
                                              "blk.1.ffn_up_exps.weight [7, 20, 48]",
                                              "blk.1.ffn_down_exps.weight [7, 48, 20]"}));
}

// Of a build without CUDA, no number of experts is routed there.
TEST(MixtureFeedForward, MoreExpertsThanAGpuRoutesAreRefused) {
  DeviceTraits gpu;
  gpu.kind = DeviceKind::kCuda;
  MixtureSpec spec = mixture(SharedExpert::kNone);
  EXPECT_EQ(make_part(spec, kHidden)->check_device(gpu, DType::kBF16).ok(), built_with_cuda());
  spec.router.experts = 5000;
  const Status refused = make_part(spec, kHidden)->check_device(gpu, DType::kBF16);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(refused.message().starts_with(
      "a mixture of 5000 experts is larger than routing on a GPU takes, which is "))
      << refused.message();
  EXPECT_TRUE(make_part(spec, kHidden)->check_device({}, DType::kF32).ok());
}

}  // namespace
}  // namespace headrace::mixture_feed_forward_test
