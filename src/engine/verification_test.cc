#include "engine/verification.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/rng.h"
#include "engine/kv_storage.h"
#include "engine/token_moves.h"
#include "ops/attention/kv_view.h"
#include "tensor/device.h"

namespace headrace::verification_test {
namespace {

class VerificationTest : public ::testing::Test {
 protected:
  // A sequence for which 5, 6, 7 were proposed; 5, 9, 7 and 8 are what its rows sampled.
  // `dead_ends`: what has no token ended a form's way, and is no fault.
  StepResult cut(double synthetic_rate, std::vector<TokenId> sampled = {5, 9, 7, 8},
                 bool dead_ends = false) {
    std::vector<LogitRow> rows;
    for (const TokenId proposed : {-1, 5, 6, 7}) {
      const auto behind = static_cast<int32_t>(rows.size()) - 1;
      rows.push_back({.sequence = SequenceId(1),
                      .samples = true,
                      .ahead = behind + 1,
                      .proposed = proposed,
                      .behind = behind});
    }
    StepResult result;
    StepResult::Row& row = result.rows.emplace_back();
    for (const TokenId token : sampled) {
      row.accepted.push_back(token);
      row.logprobs.push_back({.token = token});
      (dead_ends ? row.dead_end : row.fault) |= token < 0;
    }
    AcceptanceRule rule(synthetic_rate);
    cut_rejected(rows, rule, result);
    EXPECT_EQ(row.logprobs.size(), row.accepted.size());
    return result;
  }
  static std::vector<TokenId> tokens(const StepResult& result) {
    return {result.rows[0].accepted.begin(), result.rows[0].accepted.end()};
  }
};

TEST_F(VerificationTest, TokensUpToTheFirstThatIsNotTheOneProposed) {
  EXPECT_EQ(tokens(cut(-1)), (std::vector<TokenId>{5, 9}));
}

// A faulty row has no token (-1).
TEST_F(VerificationTest, AFaultOfARejectedRowIsNobodys) {
  EXPECT_FALSE(cut(-1, {5, 9, -1, 8}).rows[0].fault);
  EXPECT_TRUE(cut(-1, {5, -1, 7, 8}).rows[0].fault);
}

// What came before it is kept, and the next step meets it again.
TEST_F(VerificationTest, ADeadEndComesAloneOrNotAtAll) {
  const auto of = [&](std::vector<TokenId> sampled) {
    const StepResult result = cut(-1, std::move(sampled), true);
    EXPECT_FALSE(result.rows[0].fault);
    return std::pair(tokens(result), result.rows[0].dead_end);
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(of({-1, -1, -1, -1}), std::pair(Tokens{-1}, true));
  EXPECT_EQ(of({5, 6, -1, 8}), std::pair(Tokens{5, 6}, false));
  EXPECT_EQ(of({5, 6, 7, -1}), std::pair(Tokens{5, 6, 7}, false));
  EXPECT_EQ(of({5, 9, 7, -1}), std::pair(Tokens{5, 9}, false));
}

TEST_F(VerificationTest, ASyntheticRateDecidesWhateverWasSampled) {
  EXPECT_EQ(tokens(cut(1)), (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(tokens(cut(0)), (std::vector<TokenId>{5, 9}));
}

// Rows of one sequence for the tokens of a tree, as BatchBuilder makes them.
std::vector<LogitRow> rows_of(const TokenTree& tree) {
  std::vector<LogitRow> rows{{.sequence = SequenceId(1), .slot = SlotId(2), .samples = true}};
  for (int32_t i = 0; i < tree.size(); ++i) {
    rows.push_back({.sequence = SequenceId(1),
                    .slot = SlotId(2),
                    .samples = true,
                    .ahead = tree.depth(i) + 1,
                    .proposed = tree.token(i),
                    .behind = tree.parent(i) + 1});
  }
  return rows;
}

// 5 or 6 first, 7 behind each, 8 or 9 behind the second 7.
const TokenTree kForks{{5, 7, 6, 7, 8, 9}, {-1, 0, -1, 2, 3, 3}};

TEST(VerificationOfTrees, TheSampledTokensChooseTheBranch) {
  using Tokens = std::vector<TokenId>;
  const auto verify = [](const Tokens& sampled) {
    StepResult result;
    StepResult::Row& row = result.rows.emplace_back();
    for (const TokenId token : sampled) {
      row.accepted.push_back(token);
      row.logprobs.push_back({.token = token, .top = {{token, -1.0f}}});
      row.fault |= token < 0;
    }
    AcceptanceRule rule(-1);
    const std::vector<PathMove> moves = cut_rejected(rows_of(kForks), rule, result);
    std::string told;
    for (const PathMove& move : moves) {
      EXPECT_EQ(move.slot, SlotId(2));
      told += fmt::format("{}>{} ", move.from, move.to);
    }
    Tokens accepted(row.accepted.begin(), row.accepted.end());
    EXPECT_EQ(row.logprobs.size(), accepted.size());
    for (size_t i = 0; i < accepted.size(); ++i) {
      EXPECT_EQ(row.logprobs[i].token, accepted[i]);
      EXPECT_EQ(row.logprobs[i].top.size(), 1u);
    }
    return std::tuple(accepted, told, row.fault);
  };
  // Rows: before the tree, 5, 57, 6, 67, 678, 679.
  EXPECT_EQ(verify({5, 7, 1, 2, 3, 4, 0}), std::tuple(Tokens{5, 7, 1}, "", false));
  EXPECT_EQ(verify({6, 7, 1, 7, 9, 4, 3}), std::tuple(Tokens{6, 7, 9, 3}, "2>0 3>1 5>2 ", false));
  EXPECT_EQ(verify({6, 7, 1, 8, 9, 4, 3}), std::tuple(Tokens{6, 8}, "2>0 ", false));
  EXPECT_EQ(verify({4, 7, 1, 7, 9, 4, 3}), std::tuple(Tokens{4}, "", false));
  // A row of another branch has no token: nobody's fault.
  EXPECT_EQ(verify({5, 7, 1, -1, 3, 4, 0}), std::tuple(Tokens{5, 7, 1}, "", false));
  EXPECT_EQ(verify({6, 7, 1, -1, 3, 4, 0}), std::tuple(Tokens{6, -1}, "2>0 ", true));
}

// P(chi-square with k degrees of freedom > x), by Wilson and Hilferty.
double tail_of_chi_square(double x, double k) {
  const double z = (std::cbrt(x / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// Pairs of tokens of a model whose second depends on the first, drawn through trees of two
// proposals and two behind each, which come from other distributions: those of the model. A rule
// that accepts what was not drawn is found out.
TEST(VerificationOfTrees, AnswersHaveTheDistributionOfTheModel) {
  constexpr int32_t kTokens = 6, kDraws = 60'000;
  const auto weight = [](int32_t before, int32_t token) {
    return 1.0 + (before * 5 + token * 3) % 7;
  };
  Rng rng(9);
  const auto draw = [&](int32_t before) {
    double total = 0;
    for (int32_t t = 0; t < kTokens; ++t) total += weight(before, t);
    double left = rng.uniform() * total;
    int32_t token = 0;
    while (token + 1 < kTokens && (left -= weight(before, token)) >= 0) ++token;
    return token;
  };
  const auto tail = [&](double synthetic_rate) {
    AcceptanceRule rule(synthetic_rate);
    std::vector<double> counts(kTokens * kTokens, 0.0);
    for (int32_t i = 0; i < kDraws; ++i) {
      const auto one = static_cast<TokenId>(rng.below(kTokens));
      const TokenId other = (one + 1) % kTokens;
      const TokenTree tree{{one, other, 0, 3, 2, 3}, {-1, -1, 0, 0, 1, 1}};
      StepResult result;
      StepResult::Row& row = result.rows.emplace_back();
      for (const TokenId before : {kTokens, one, other, 0, 3, 2, 3}) {
        row.accepted.push_back(draw(before));
      }
      cut_rejected(rows_of(tree), rule, result);
      const TokenId first = row.accepted[0];
      const TokenId second = row.accepted.size() > 1 ? row.accepted[1] : draw(first);
      counts[static_cast<size_t>(first * kTokens + second)] += 1;
    }
    double chi_square = 0;
    for (int32_t a = 0; a < kTokens; ++a) {
      for (int32_t b = 0; b < kTokens; ++b) {
        double of_first = 0, of_second = 0;
        for (int32_t t = 0; t < kTokens; ++t) {
          of_first += weight(kTokens, t);
          of_second += weight(a, t);
        }
        const double expected = kDraws * weight(kTokens, a) / of_first * weight(a, b) / of_second;
        const double off = counts[static_cast<size_t>(a * kTokens + b)] - expected;
        chi_square += off * off / expected;
      }
    }
    return tail_of_chi_square(chi_square, kTokens * kTokens - 1);
  };
  EXPECT_GT(tail(-1), 1e-3);
  EXPECT_LT(tail(0.1), 1e-9);
}

// One full and one sliding layer in pages of a slot.
class VerificationOfTreesInPages : public ::testing::Test {
 protected:
  static constexpr int32_t kKnown = 14;
  void SetUp() override {
    ModelSpec spec;
    spec.layer_count = 2;
    spec.kv = {{.kv_heads = 2, .k_dim = 64, .v_dim = 32},
               {.kv_heads = 1, .k_dim = 64, .v_dim = 64, .window = 8}};
    plan_ = plan_kv(spec, {.k = KvFormat::kInt8, .v = KvFormat::kF16}, 16);
    device_ = create_cpu_device(1);
    auto memory = KvMemory::create(KvMemoryKind::kPaged, *device_,
                                   {.page_bytes = plan_.page_bytes, .page_count = 8});
    storage_.emplace(KvStorage::create(*device_, spec, plan_, std::move(memory).value()));
    slots_.emplace(4, static_cast<int32_t>(plan_.groups.size()), 4);
    auto request = std::make_shared<Request>();
    request->prompt.assign(kKnown, 1);
    request->sampling.max_tokens = 9;
    Admission admission{.sequence = SequenceId(1),
                        .slot = SlotId(2),
                        .request = request,
                        .tokens = request->prompt};
    for (int32_t group = 0; group < std::ssize(plan_.groups); ++group) {
      admission.blocks.push_back(
          {.group = group, .blocks = {BlockId(2 * group + 1), BlockId(2 * group)}});
    }
    step_.admitted = {admission};
    step_.work.push_back({.sequence = SequenceId(1),
                          .slot = SlotId(2),
                          .first = kKnown - 1,
                          .count = 1 + kForks.size(),
                          .rows = LogitRows::kVerify,
                          .samples = true,
                          .proposed = kForks});
    slots_->update(step_);
  }

  KvPlan plan_;
  std::unique_ptr<Device> device_;
  std::optional<KvStorage> storage_;
  std::optional<SlotTable> slots_;
  StepPlan step_;
};

// Depth says where a row is, its index where its keys lie.
TEST_F(VerificationOfTreesInPages, ABatchKnowsEachRowsPath) {
  BatchBuilder builder(plan_, {0, 2}, /*keeps_rows=*/true);
  const ForwardBatch batch = builder.build(step_, *slots_);
  EXPECT_EQ(std::vector(batch.positions.begin(), batch.positions.end()),
            (std::vector<int32_t>{13, 14, 15, 14, 15, 16, 16}));
  EXPECT_EQ(batch.groups[0].slots[1], 16 + 14);  // of block 1
  EXPECT_EQ(batch.groups[0].slots[3], 0);        // of block 0
  for (const auto& group : batch.groups) {
    ASSERT_EQ(group.sequences.size(), 1u);
    const AttentionSequence& sequence = group.sequences[0];
    EXPECT_EQ(sequence.tree_rows, 6);
    const uint64_t paths[] = {0, 0b1, 0b11, 0b100, 0b1100, 0b11100, 0b101100};
    for (int32_t r = 0; r < 7; ++r) {
      EXPECT_EQ(sequence.path(r), paths[r]) << r;
      EXPECT_EQ(sequence.position(r), batch.positions[static_cast<size_t>(r)]) << r;
    }
  }
  const std::vector<LogitRow> expected = rows_of(kForks);
  ASSERT_EQ(builder.logit_rows().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(builder.logit_rows()[i].hidden_row, static_cast<int32_t>(i));
    EXPECT_EQ(builder.logit_rows()[i].ahead, expected[i].ahead);
    EXPECT_EQ(builder.logit_rows()[i].proposed, expected[i].proposed);
    EXPECT_EQ(builder.logit_rows()[i].behind, expected[i].behind);
  }
}

// From one page to another, in all layers, with their scales; nothing else changes.
TEST_F(VerificationOfTreesInPages, AnAcceptedTokenIsMovedAsItIsKept) {
  const auto bytes = static_cast<size_t>(8 * plan_.page_bytes);
  std::byte* const pool = storage_->pool();
  for (size_t i = 0; i < bytes; ++i) pool[i] = static_cast<std::byte>(mix64(i));
  const std::vector<std::byte> before(pool, pool + bytes);
  move_token(*storage_, *slots_, {.slot = SlotId(2), .from = 17, .to = 15},
             {0, static_cast<int32_t>(storage_->layers().size())});
  size_t changed = 0, kept = 0;
  for (size_t i = 0; i < bytes; ++i) changed += pool[i] != before[i] ? 1 : 0;
  for (const KvLayerView& kv : storage_->layers()) {
    const auto table = slots_->block_table(SlotId(2), kv.kv_heads == 2 ? 0 : plan_.layer_group[1]);
    const int64_t to = int64_t{table[0]} * 16 + 15, from = int64_t{table[1]} * 16 + 1;
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      for (int32_t d = 0; d < kv.k_dim; ++d) {
        EXPECT_EQ(*key_at(kv, to, head, d), *key_at(kv, from, head, d));
      }
      for (int32_t d = 0; d < kv.v_dim; ++d) {
        EXPECT_EQ(std::memcmp(value_at(kv, to, head, d), value_at(kv, from, head, d), 2), 0);
      }
      for (int32_t d = 0; d < kv.k_dim; d += kKvGroup) {
        EXPECT_EQ(*k_head(kv, table[0], head).scale(15, d),
                  *k_head(kv, table[1], head).scale(1, d));
        kept += 2;
      }
      kept += static_cast<size_t>(kv.k_dim + 2 * kv.v_dim);
    }
  }
  EXPECT_LE(changed, kept);
  EXPECT_GT(changed, kept * 9 / 10);
}

}  // namespace
}  // namespace headrace::verification_test
