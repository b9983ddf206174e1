#include "models/parts/ngram_mixer.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "models/parts/part_fixture.h"
#include "models/qwen4.h"

namespace headrace::ngram_mixer_test {
namespace {

constexpr int64_t kHidden = 12, kStreams = 2, kWidth = 20;
constexpr int32_t kRows = 37, kTaps = 3;
constexpr TokenId kEnd = 5;

NgramSpec spec_of_three() {
  return {.carried = {.streams = kStreams, .hyper = true, .gate_rank = 1, .tokens = true},
          .size = 3,
          .width = kWidth,
          .taps = kTaps,
          .table_parts = 3,
          .table_rows = 53,
          .end = kEnd,
          .norm_eps = 1e-5f,
          .multipliers = {101, 7919, 65537},
          .hash_rows = {11, 13, 9, 17}};
}

std::vector<TokenId> some_tokens() {
  Rng rng(3);
  std::vector<TokenId> tokens;
  for (int32_t t = 0; t < kRows; ++t) tokens.push_back(static_cast<TokenId>(rng.uniform() * 12));
  tokens[4] = tokens[11] = tokens[12] = kEnd;
  return tokens;
}

// Of text up to token t.
std::vector<int64_t> rows_as_written(const NgramSpec& spec, const std::vector<TokenId>& text,
                                     int32_t t) {
  const auto token = [&](int32_t back) {
    for (int32_t i = 1; i <= back; ++i) {
      if (i > t || text[static_cast<size_t>(t - i)] == spec.end) return spec.end;
    }
    return text[static_cast<size_t>(t - back)];
  };
  std::vector<int64_t> rows;
  int64_t before = 0;
  for (int32_t length = 2; length <= spec.size; ++length) {
    uint64_t mixed = 0;
    for (int32_t i = 0; i < length; ++i) {
      mixed ^= static_cast<uint64_t>(token(i)) * spec.multipliers[static_cast<size_t>(i)];
    }
    for (int32_t h = 0; h < spec.hashes_of_length(); ++h) {
      const int32_t count =
          spec.hash_rows[static_cast<size_t>((length - 2) * spec.hashes_of_length() + h)];
      rows.push_back(before + static_cast<int64_t>(mixed % static_cast<uint64_t>(count)));
      before += count;
    }
  }
  return rows;
}

TEST(NgramMixer, TokensBeforeAnEndOfTextAreNotHashed) {
  const NgramSpec spec = spec_of_three();
  const std::vector<TokenId> text = some_tokens();
  std::vector<TokenId> tokens = {kEnd, kEnd};
  tokens.insert(tokens.end(), text.begin(), text.end());
  const std::vector<int64_t> rows = ngram_rows(spec, tokens);
  ASSERT_EQ(rows.size(), size_t{4} * kRows);
  for (int32_t t = 0; t < kRows; ++t) {
    const auto first = rows.begin() + 4 * t;
    EXPECT_EQ(std::vector<int64_t>(first, first + 4), rows_as_written(spec, text, t)) << t;
  }
}

// As transformers 5.24 has them in files of these numbers.
TEST(NgramMixer, MultipliersAndPrimesFollowFromTheConfiguration) {
  EXPECT_EQ(ngram_multipliers(1234, 0, 3, 96),
            (std::vector<uint64_t>{64343153921368269u, 59473814669861233u, 55314113489879299u}));
  EXPECT_EQ(ngram_multipliers(1234, 1, 3, 248320),
            (std::vector<uint64_t>{3352040966061u, 19752442147475u, 10742103100073u}));
  EXPECT_EQ(primes_from(50, 0, 4), (std::vector<int32_t>{53, 59, 61, 67}));
  EXPECT_EQ(primes_from(50, 4, 4), (std::vector<int32_t>{71, 73, 79, 83}));
  EXPECT_EQ(primes_from(20000000, 16, 16).front(), 20000213);
  EXPECT_EQ(primes_from(20000000, 0, 32).back(), 20000429);
}

class NgramMixerTest : public testing::Test {
 protected:
  NgramMixerTest() {
    EXPECT_TRUE(part_->load(tensors_).ok());
    for (int32_t t = 0; t < kRows; ++t) {
      frames_.at(t, token_column_) = std::bit_cast<float>(text_[static_cast<size_t>(t)]);
    }
  }

  static Row part_of(const Row& rows, int64_t index) {
    const auto first = rows.begin() + index * kHidden;
    return {first, first + kHidden};
  }
  Row normed_part(const Row& row, const std::string& name, int64_t j) const {
    const std::vector<float>& all = tensors_.values(name);
    const std::vector<float> own(all.begin() + j * kHidden, all.begin() + (j + 1) * kHidden);
    return rms_normed(part_of(row, j), own, spec_.norm_eps);
  }
  Row embedded(int32_t t) const {
    Row all;
    for (const int64_t row : rows_as_written(spec_, text_, t)) {
      const std::vector<float>& part =
          tensors_.values("ngram_embd." + std::to_string(row / 18) + ".weight");
      for (int64_t i = 0; i < kWidth / 4; ++i) {
        all.push_back(part[static_cast<size_t>(row % 18 * (kWidth / 4) + i)]);
      }
    }
    return all;
  }
  // What is added to the streams of each row.
  Rows expected(const Rows& streams) const {
    Rows gated, normed, added;
    for (int32_t t = 0; t < kRows; ++t) {
      const Row e = embedded(t), keys = times(tensors_.values("ngram_key.weight"), e);
      const Row value = times(tensors_.values("ngram_value.weight"), e);
      Row& gates = gated.emplace_back();
      for (int64_t j = 0; j < kStreams; ++j) {
        const Row key = normed_part(keys, "ngram_key_norm.weight", j);
        const Row query =
            normed_part(streams[static_cast<size_t>(t)], "ngram_query_norm.weight", j);
        const double score = std::inner_product(key.begin(), key.end(), query.begin(), 0.0) /
                             std::sqrt(double{kHidden});
        const double root = std::copysign(std::sqrt(std::abs(score)), score);
        for (const double v : value) gates.push_back(v / (1 + std::exp(-root)));
      }
      Row& of_conv = normed.emplace_back();
      for (int64_t j = 0; j < kStreams; ++j) {
        const Row part = normed_part(gates, "ngram_conv_norm.weight", j);
        of_conv.insert(of_conv.end(), part.begin(), part.end());
      }
      Row& row = added.emplace_back(gates);
      const std::vector<float>& taps = tensors_.values("ngram_conv.weight");
      for (size_t c = 0; c < row.size(); ++c) {
        double sum = 0;
        for (int32_t j = 0; j < kTaps; ++j) {
          const int32_t from = t - (kTaps - 1 - j) * spec_.size;
          if (from < 0) continue;
          sum += double{taps[c * kTaps + static_cast<size_t>(j)]} *
                 normed[static_cast<size_t>(from)][c];
        }
        row[c] += sum / (1 + std::exp(-sum));
      }
    }
    return added;
  }

  struct Result {
    TestMatrix x, streams;
  };
  Result run(const std::vector<int32_t>& steps) {
    PartCache cache(pass_.device(), *part_, kRows);
    Result all{TestMatrix(kRows, kHidden), TestMatrix(kRows, kStreams * kHidden)};
    int32_t first = 0;
    for (const int32_t count : steps) {
      TestMatrix x(count, kHidden), frames(count, token_column_ + 1);
      for (int32_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < kHidden; ++i) x.at(t, i) = x_.at(first + t, i);
        for (int64_t i = 0; i <= token_column_; ++i) frames.at(t, i) = frames_.at(first + t, i);
      }
      PartPass pass(count, kHidden, true);
      const TestMatrix out = pass.run(*part_, cache, x, {.first = first, .frames = frames.view()});
      for (int32_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < kHidden; ++i) all.x.at(first + t, i) = out.at(t, i);
        for (int64_t i = 0; i < kStreams * kHidden; ++i) {
          all.streams.at(first + t, i) = frames.at(t, i);
        }
      }
      first += count;
    }
    return all;
  }

  const NgramSpec spec_ = spec_of_three();
  const int64_t token_column_ = spec_.carried.token_column(kHidden);
  const std::vector<TokenId> text_ = some_tokens();
  PartPass pass_{kRows, kHidden, true};
  MadeTensors tensors_{pass_.device()};
  std::unique_ptr<Mixer> part_ = make_part(spec_, kHidden);
  Rng rng_{9};
  TestMatrix x_{rng_, kRows, kHidden};
  TestMatrix frames_{rng_, kRows, token_column_ + 1};
};

TEST_F(NgramMixerTest, EqualsPlainLoops) {
  Rows streams = rows_of(frames_), x = rows_of(x_);
  for (Row& row : streams) row.resize(kStreams * kHidden);
  const Rows added = expected(streams);
  for (size_t t = 0; t < added.size(); ++t) {
    for (size_t i = 0; i < streams[t].size(); ++i) streams[t][i] += added[t][i];
    for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += added[t][i];
  }
  const Result all = run({kRows});
  EXPECT_TRUE(rows_close(all.streams, streams));
  EXPECT_TRUE(rows_close(all.x, x));
}

TEST_F(NgramMixerTest, BitsDoNotDependOnTheSteps) {
  const Result whole = run({kRows});
  for (const std::vector<int32_t>& steps :
       {std::vector<int32_t>{1, 1, 10, 1, 24}, {20, 17}, {3, 1, 1, 1, 31}}) {
    const Result cut = run(steps);
    EXPECT_TRUE(same_bits(cut.streams, whole.streams) && same_bits(cut.x, whole.x));
  }
}

TEST_F(NgramMixerTest, AGpuRefusesItByName) {
  const Status refused = part_->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(refused.message().starts_with("embeddings of several tokens have no kernels"));
}

}  // namespace
}  // namespace headrace::ngram_mixer_test
