#include "models/parts/latent_attention_mixer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/parts/part_fixture.h"

namespace headrace::latent_attention_mixer_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kRows = 37;
constexpr size_t kPairs = 3;

LatentAttentionSpec plain_spec() {
  return {.heads = 3,
          .rank = 16,
          .plain_dim = 7,
          .rope_dim = 2 * kPairs,
          .value_dim = 5,
          .scale = 0.4f,
          .norm_eps = 1e-6f};
}

double angle(int32_t position, size_t i) {
  return position * std::pow(100.0, -2.0 * static_cast<double>(i) / (2 * kPairs));
}

struct Angles {
  explicit Angles(int32_t first, int32_t count) : cos(count, kPairs), sin(count, kPairs) {
    for (int32_t t = 0; t < count; ++t) {
      for (size_t i = 0; i < kPairs; ++i) {
        cos.at(t, static_cast<int64_t>(i)) = static_cast<float>(std::cos(angle(first + t, i)));
        sin.at(t, static_cast<int64_t>(i)) = static_cast<float>(std::sin(angle(first + t, i)));
      }
    }
    both = {cos.view(), sin.view()};
  }
  TestMatrix cos, sin;
  RopeAngles both;
};

Row rotated(const double* from, int32_t position) {
  Row turned(2 * kPairs);
  for (size_t i = 0; i < kPairs; ++i) {
    const double c = std::cos(angle(position, i)), s = std::sin(angle(position, i));
    turned[i] = from[i] * c - from[i + kPairs] * s;
    turned[i + kPairs] = from[i + kPairs] * c + from[i] * s;
  }
  return turned;
}

class LatentAttention : public testing::Test {
 protected:
  void load(const LatentAttentionSpec& spec) {
    spec_ = spec;
    cache_.reset();  // they have memory of the pass's device
    tensors_.reset();
    part_.reset();
    pass_.emplace(kRows, kHidden, true);
    part_ = make_part(spec, kHidden);
    tensors_.emplace(pass_->device());
    cache_.emplace(pass_->device(), part_->kept(), kRows);
    for (const auto& [name, values] : given_) tensors_->set(name, values);
    ASSERT_TRUE(part_->load(*tensors_).ok());
  }

  // Rows of x + mixer(x), in steps of so many rows.
  Rows run(const TestMatrix& x, const std::vector<int32_t>& steps) {
    Rows all;
    int32_t first = 0;
    for (const int32_t count : steps) {
      TestMatrix part(count, kHidden);
      for (int32_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < kHidden; ++i) part.at(t, i) = x.at(first + t, i);
      }
      const Angles angles(first, count);
      PartPass pass(count, kHidden, true);
      const TestMatrix out =
          pass.run(*part_, *cache_, part, {.first = first, .angles = {&angles.both, 1}});
      for (Row& row : rows_of(out)) all.push_back(std::move(row));
      first += count;
    }
    return all;
  }

  // In the form of the paper: keys and values of every head are made.
  Rows expected(const TestMatrix& x) const {
    Rows keys, values, out, index_keys;
    for (const Row& row : rows_of(x)) {
      const auto position = static_cast<int32_t>(out.size());
      if (spec_.index.is_sparse()) index_keys.push_back(index_key(row, position));
      Row kept = times(tensors_->values("attn_kv_a_mqa.weight"), row);
      const Row turned = rotated(&kept[static_cast<size_t>(spec_.rank)], position);
      kept.resize(static_cast<size_t>(spec_.rank));
      const Row latent =
          rms_normed(kept, tensors_->values("attn_kv_a_norm.weight"), spec_.norm_eps);
      const Row both = times(tensors_->values("attn_kv_b.weight"), latent);  // [H, plain + value]
      Row key, value;
      const auto plain = static_cast<size_t>(spec_.plain_dim);
      const auto value_dim = static_cast<size_t>(spec_.value_dim);
      for (size_t h = 0; h < static_cast<size_t>(spec_.heads); ++h) {
        const double* const of_head = &both[h * (plain + value_dim)];
        key.insert(key.end(), of_head, of_head + plain);
        key.insert(key.end(), turned.begin(), turned.end());
        value.insert(value.end(), of_head + plain, of_head + plain + value_dim);
      }
      keys.push_back(std::move(key));
      values.push_back(std::move(value));
      Rows seen_keys = keys, seen_values = values;
      if (spec_.index.is_sparse()) leave_chosen(row, position, index_keys, seen_keys, seen_values);
      Row seen = attended(query_of(row, position), seen_keys, seen_values);
      const Row gates = gates_of(row);
      for (size_t i = 0; !gates.empty() && i < seen.size(); ++i) {
        seen[i] /= 1 + std::exp(-gates[i / (seen.size() / gates.size())]);
      }
      out.push_back(times(tensors_->values("attn_output.weight"), seen));
      for (size_t i = 0; i < row.size(); ++i) out.back()[i] += row[i];
    }
    return out;
  }

  // What the index keeps of a row: LayerNorm, whose front is rotated.
  Row index_key(const Row& row, int32_t position) const {
    Row key = times(tensors_->values("indexer.attn_k.weight"), row);
    const auto count = static_cast<double>(key.size());
    const double mean = std::accumulate(key.begin(), key.end(), 0.0) / count;
    double squares = 0;
    for (const double value : key) squares += (value - mean) * (value - mean) / count;
    const std::vector<float>& norm = tensors_->values("indexer.k_norm.weight");
    const std::vector<float>& bias = tensors_->values("indexer.k_norm.bias");
    for (size_t d = 0; d < key.size(); ++d) {
      key[d] = (key[d] - mean) / std::sqrt(squares + 1e-6) * norm[d] + bias[d];
    }
    const Row front = rotated(key.data(), position);
    std::copy(front.begin(), front.end(), key.begin());
    return key;
  }

  // Of the keys that a row sees, those of the largest scores.
  void leave_chosen(const Row& row, int32_t position, const Rows& index_keys, Rows& keys,
                    Rows& values) const {
    const auto dim = static_cast<size_t>(spec_.index.dim);
    const Row latent = rms_normed(times(tensors_->values("attn_q_a.weight"), row),
                                  tensors_->values("attn_q_a_norm.weight"), spec_.norm_eps);
    Row queries = times(tensors_->values("indexer.attn_q_b.weight"), latent);
    const Row worth = times(tensors_->values("indexer.proj.weight"), row);
    std::vector<std::pair<double, size_t>> scores;
    for (size_t s = 0; s < index_keys.size(); ++s) scores.emplace_back(0.0, s);
    for (size_t h = 0; h < worth.size(); ++h) {
      double* const query = &queries[h * dim];
      const Row front = rotated(query, position);
      std::copy(front.begin(), front.end(), query);
      for (auto& [score, s] : scores) {
        const double dot = std::inner_product(query, query + dim, index_keys[s].begin(), 0.0);
        score += worth[h] * std::max(dot, 0.0);
      }
    }
    std::ranges::stable_sort(scores, std::greater<>(), &std::pair<double, size_t>::first);
    scores.resize(std::min(scores.size(), static_cast<size_t>(spec_.index.top)));
    Rows chosen_keys, chosen_values;
    for (const auto& [score, s] : scores) {
      chosen_keys.push_back(keys[s]);
      chosen_values.push_back(values[s]);
    }
    keys = chosen_keys;
    values = chosen_values;
  }

  Row gates_of(const Row& row) const {
    if (spec_.gate_dim == 0) return {};
    if (!spec_.query_and_gates) return times(tensors_->values("attn_gate.weight"), row);
    return of_each_head(made_of_latents(row), spec_.query_dim(), spec_.gate_dim);
  }

  // Of a head's query and gates side by side some, of all heads.
  Row of_each_head(const Row& both, int32_t first, int32_t count) const {
    Row some;
    const int32_t step = spec_.query_dim() + spec_.gate_dim;
    for (int32_t h = 0; h < spec_.heads; ++h) {
      const auto from = both.begin() + h * step + first;
      some.insert(some.end(), from, from + count);
    }
    return some;
  }

  Row made_of_latents(const Row& row) const {
    const Row plain = times(tensors_->values("attn_q_a.weight"), row);
    Row latent = rms_normed(plain, tensors_->values("attn_q_a_norm.weight"), spec_.norm_eps);
    if (spec_.query_and_gates) latent.insert(latent.end(), plain.begin(), plain.end());
    return times(tensors_->values("attn_q_b.weight"), latent);
  }

  Row query_of(const Row& row, int32_t position) const {
    Row q;
    if (spec_.query_and_gates) {
      q = of_each_head(made_of_latents(row), 0, spec_.query_dim());
    } else if (spec_.query_rank > 0) {
      q = made_of_latents(row);
    } else {
      q = times(tensors_->values("attn_q.weight"), row);
    }
    for (int32_t h = 0; h < spec_.heads; ++h) {
      double* const part = &q[static_cast<size_t>(h * spec_.query_dim() + spec_.plain_dim)];
      const Row turned = rotated(part, position);
      std::copy(turned.begin(), turned.end(), part);
    }
    return q;
  }

  Row attended(const Row& q, const Rows& keys, const Rows& values) const {
    Row out;
    const auto dim = static_cast<size_t>(spec_.query_dim());
    const auto value_dim = static_cast<size_t>(spec_.value_dim);
    for (size_t h = 0; h < static_cast<size_t>(spec_.heads); ++h) {
      Row weights;
      for (const Row& key : keys) {
        const double dot = std::inner_product(&q[h * dim], &q[h * dim] + dim, &key[h * dim], 0.0);
        weights.push_back(std::exp(dot * double{spec_.scale}));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t d = 0; d < value_dim; ++d) {
        double mixed = 0;
        for (size_t s = 0; s < keys.size(); ++s) mixed += weights[s] * values[s][h * value_dim + d];
        out.push_back(mixed / sum);
      }
    }
    return out;
  }

  LatentAttentionSpec spec_;
  std::optional<PartPass> pass_;
  std::unique_ptr<Mixer> part_;
  std::optional<MadeTensors> tensors_;
  std::optional<PartCache> cache_;
  std::map<std::string, std::vector<float>> given_;
};

TestMatrix matrix_of(const Rows& rows) {
  TestMatrix matrix(static_cast<int64_t>(rows.size()), kHidden);
  for (size_t t = 0; t < rows.size(); ++t) {
    for (size_t i = 0; i < rows[t].size(); ++i) {
      matrix.at(static_cast<int64_t>(t), static_cast<int64_t>(i)) = static_cast<float>(rows[t][i]);
    }
  }
  return matrix;
}

TEST_F(LatentAttention, TheAbsorbedFormIsTheExpandedOne) {
  Rng rng(3);
  const TestMatrix x(rng, kRows, kHidden);
  for (const int32_t query_rank : {0, 9}) {
    for (const int32_t gate_dim : {0, 1, 5}) {
      LatentAttentionSpec spec = plain_spec();
      spec.query_rank = query_rank;
      spec.gate_dim = gate_dim;
      load(spec);
      EXPECT_TRUE(rows_close(matrix_of(run(x, {kRows})), expected(x)))
          << query_rank << ", gates " << gate_dim;
    }
  }
}

// Queries and gates may be made of one, of latents before their norm, too: all of it where keys are
// chosen, as well.
TEST_F(LatentAttention, QueriesAndGatesOfLatentsOfTwoKinds) {
  Rng rng(13);
  const TestMatrix x(rng, kRows, kHidden);
  for (const int32_t index_heads : {0, 3}) {
    LatentAttentionSpec spec = plain_spec();
    spec.query_rank = 9;
    spec.gate_dim = spec.value_dim;
    spec.query_and_gates = true;
    spec.index = {.heads = index_heads, .dim = 8, .top = 11};
    load(spec);
    EXPECT_TRUE(rows_close(matrix_of(run(x, {kRows})), expected(x))) << index_heads;
    EXPECT_EQ(run(x, {20, 1, kRows - 21}), run(x, {kRows}));
  }
}

TEST_F(LatentAttention, BitsDoNotDependOnTheSteps) {
  Rng rng(4);
  const TestMatrix x(rng, kRows, kHidden);
  load(plain_spec());
  const Rows whole = run(x, {kRows});
  EXPECT_EQ(run(x, {1, 15, 1, 18, 2}), whole);
}

// A file may have the matrices of keys turned, and apart from those of values.
TEST_F(LatentAttention, MatricesThatLieApartAreTheSame) {
  Rng rng(5);
  const TestMatrix x(rng, kRows, kHidden);
  LatentAttentionSpec spec = plain_spec();
  load(spec);
  const Rows joined = run(x, {kRows});
  const std::vector<float> both = tensors_->values("attn_kv_b.weight");
  std::vector<float> keys, values;
  const auto rank = static_cast<size_t>(spec.rank), plain = static_cast<size_t>(spec.plain_dim);
  const auto value_dim = static_cast<size_t>(spec.value_dim);
  for (size_t h = 0; h < static_cast<size_t>(spec.heads); ++h) {
    const float* const of_head = &both[h * (plain + value_dim) * rank];
    for (size_t c = 0; c < rank; ++c) {
      for (size_t d = 0; d < plain; ++d) keys.push_back(of_head[d * rank + c]);
    }
    values.insert(values.end(), of_head + plain * rank, of_head + (plain + value_dim) * rank);
  }
  for (const std::string& name : tensors_->names()) given_[name] = tensors_->values(name);
  given_["attn_k_b.weight"] = keys;
  given_["attn_v_b.weight"] = values;
  spec.joined = false;
  load(spec);
  EXPECT_EQ(run(x, {kRows}), joined);
}

// Rows of rotated components lie as (pair, half) in files, here as (half, pair).
TEST_F(LatentAttention, InterleavedRowsAreTheSame) {
  Rng rng(6);
  const TestMatrix x(rng, kRows, kHidden);
  LatentAttentionSpec spec = plain_spec();
  load(spec);
  const Rows in_halves = run(x, {kRows});
  for (const std::string& name : tensors_->names()) given_[name] = tensors_->values(name);
  const auto interleave = [&](const std::string& name, size_t heads, size_t before) {
    const std::vector<float> rows = given_[name];
    for (size_t h = 0; h < heads; ++h) {
      const size_t first = h * (before + 2 * kPairs) + before;
      for (size_t r = 0; r < 2 * kPairs; ++r) {
        const size_t from = first + r / 2 + r % 2 * kPairs;
        std::copy_n(&rows[from * kHidden], kHidden, &given_[name][(first + r) * kHidden]);
      }
    }
  };
  interleave("attn_q.weight", static_cast<size_t>(spec.heads), static_cast<size_t>(spec.plain_dim));
  interleave("attn_kv_a_mqa.weight", 1, static_cast<size_t>(spec.rank));
  spec.rows_interleaved = true;
  load(spec);
  EXPECT_EQ(run(x, {kRows}), in_halves);
}

LatentAttentionSpec sparse_spec(int32_t top) {
  LatentAttentionSpec spec = plain_spec();
  spec.query_rank = 9;
  spec.index = {.heads = 7, .dim = 2 * kPairs + 4, .top = top};
  return spec;
}

TEST_F(LatentAttention, RowsAttendTheKeysThatAnIndexChooses) {
  Rng rng(8);
  const TestMatrix x(rng, kRows, kHidden);
  for (const int32_t top : {1, 5, 16, 17, kRows - 1}) {
    load(sparse_spec(top));
    const Rows whole = run(x, {kRows});
    EXPECT_TRUE(rows_close(matrix_of(whole), expected(x))) << top;
    EXPECT_EQ(run(x, {1, 15, 1, 18, 2}), whole) << top;
    EXPECT_EQ(run(x, std::vector<int32_t>(kRows, 1)), whole) << top;
  }
}

// While a row sees no more than that many, it attends all.
TEST_F(LatentAttention, AnIndexThatChoosesAllChangesNoBit) {
  Rng rng(9);
  const TestMatrix x(rng, kRows, kHidden);
  load(sparse_spec(kRows));
  const Rows sparse = run(x, {kRows});
  for (const std::string& name : tensors_->names()) given_[name] = tensors_->values(name);
  LatentAttentionSpec spec = sparse_spec(kRows);
  spec.index = {};
  load(spec);
  EXPECT_EQ(run(x, {kRows}), sparse);
}

TEST_F(LatentAttention, ALargeOneIsRefusedOnAGpu) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  load(plain_spec());
  EXPECT_EQ(part_->check_device(gpu, DType::kBF16).ok(), built_with_cuda());
  LatentAttentionSpec large = plain_spec();
  large.rank = 700;
  load(large);
  const Status status = part_->check_device(gpu, DType::kBF16);
  EXPECT_NE(status.message().find("--device cpu"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace headrace::latent_attention_mixer_test
