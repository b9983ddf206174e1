#include "models/parts/compressed_attention_mixer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/parts/part_fixture.h"

namespace headrace::compressed_attention_mixer_test {
namespace {

constexpr int64_t kHidden = 20;
constexpr int32_t kRows = 53;
constexpr size_t kPairs = 3;

double frequency(size_t i) { return std::pow(50.0, -static_cast<double>(i) / kPairs); }

CompressedAttentionSpec spec_of(int32_t rate, bool overlaps, int32_t top) {
  CompressedAttentionSpec spec{.heads = 4,
                               .head_dim = 10,
                               .query_rank = 12,
                               .window = 7,
                               .scale = 0.4f,
                               .norm_eps = 1e-5f,
                               .groups = 2,
                               .group_rank = 5};
  if (rate == 0) return spec;
  spec.compressor = {.rate = rate,
                     .overlaps = overlaps,
                     .dim = spec.head_dim,
                     .norm_eps = spec.norm_eps,
                     .layer = 0,
                     .query_rank = spec.query_rank};
  for (size_t i = 0; i < kPairs; ++i) spec.compressor.inv_freq.push_back(frequency(i));
  if (top == 0) return spec;
  spec.compressor.index_heads = 3;
  spec.compressor.index_dim = 8;
  spec.compressor.index_top = top;
  return spec;
}

// The last pairs of neighbours of each run of `dim` numbers, turned by a position's angles.
void rotate(Row& row, size_t dim, double position) {
  for (size_t end = dim; end <= row.size(); end += dim) {
    for (size_t i = 0; i < kPairs; ++i) {
      double* const pair = &row[end - 2 * kPairs + 2 * i];
      const double a = pair[0], b = pair[1], angle = position * frequency(i);
      pair[0] = a * std::cos(angle) - b * std::sin(angle);
      pair[1] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

TestMatrix matrix_of(const Rows& rows) {
  TestMatrix matrix(static_cast<int64_t>(rows.size()), kHidden);
  for (size_t t = 0; t < rows.size(); ++t) {
    for (size_t i = 0; i < rows[t].size(); ++i) {
      matrix.at(static_cast<int64_t>(t), static_cast<int64_t>(i)) = static_cast<float>(rows[t][i]);
    }
  }
  return matrix;
}

class CompressedAttention : public testing::Test {
 protected:
  void load(const CompressedAttentionSpec& spec) {
    spec_ = spec;
    pages_.reset();  // they have memory of the pass's device
    shared_pages_.reset();
    tensors_.reset();
    part_.reset();
    pass_.emplace(kRows, kHidden, true);
    part_ = make_part(spec, kHidden);
    tensors_.emplace(pass_->device());
    pages_.emplace(pass_->device(), part_->kept(), kRows);
    if (spec.compressor.is_here()) {
      shared_pages_.emplace(pass_->device(), spec.compressor.kept(), kRows);
    }
    for (const auto& [name, values] : given_) tensors_->set(name, values);
    ASSERT_TRUE(part_->load(*tensors_).ok());
  }

  // Rows of x + mixer(x), in steps of so many rows.
  Rows run(const TestMatrix& x, const std::vector<int32_t>& steps) {
    Rows all;
    int32_t first = 0;
    for (const int32_t count : steps) {
      TestMatrix part(count, kHidden), cos(count, kPairs), sin(count, kPairs);
      for (int32_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < kHidden; ++i) part.at(t, i) = x.at(first + t, i);
        for (size_t i = 0; i < kPairs; ++i) {
          const double angle = (first + t) * frequency(i);
          cos.at(t, static_cast<int64_t>(i)) = static_cast<float>(std::cos(angle));
          sin.at(t, static_cast<int64_t>(i)) = static_cast<float>(std::sin(angle));
        }
      }
      const RopeAngles angles{cos.view(), sin.view()};
      PartPass pass(count, kHidden, true);
      const TestMatrix out = pass.run(*part_, *pages_, part,
                                      {.first = first,
                                       .angles = {&angles, 1},
                                       .beside = shared_pages_ ? &*shared_pages_ : nullptr});
      for (Row& row : rows_of(out)) all.push_back(std::move(row));
      first += count;
    }
    return all;
  }

  Row product(const char* name, const Row& row) const {
    return times(tensors_->values(std::string(name) + ".weight"), row);
  }
  Row normed(const char* name, const Row& row) const {
    return rms_normed(row, tensors_->values(std::string(name) + ".weight"), spec_.norm_eps);
  }

  // Of the sources of all rows up to a run's last one, its key: `name` is where its tensors begin.
  Row shared_key(const std::string& name, const Rows& rows, size_t run, size_t dim) const {
    const auto rate = static_cast<size_t>(spec_.compressor.rate);
    const auto series = static_cast<size_t>(spec_.compressor.series());
    const std::vector<float>& bias = tensors_->values(name + "_ape.weight");
    Row weights(dim), sums(dim);
    const auto add = [&](size_t first, size_t of_series) {
      for (size_t j = 0; j < rate; ++j) {
        const Row numbers = times(tensors_->values(name + "_kv.weight"), rows[first + j]);
        const Row gates = times(tensors_->values(name + "_gate.weight"), rows[first + j]);
        for (size_t d = 0; d < dim; ++d) {
          const size_t at = of_series * dim + d;
          const double weight = std::exp(gates[at] + bias[j * series * dim + at]);
          weights[d] += weight;
          sums[d] += weight * numbers[at];
        }
      }
    };
    if (series == 2 && run > 0) add((run - 1) * rate, 0);
    add(run * rate, series - 1);
    for (size_t d = 0; d < dim; ++d) sums[d] /= weights[d];
    Row key = rms_normed(sums, tensors_->values(name + "_norm.weight"), spec_.norm_eps);
    rotate(key, dim, static_cast<double>(run * rate));
    return key;
  }

  // The keys that the index leaves of those that tokens share.
  Rows chosen(const Row& row, const Row& latent, int32_t position, const Rows& keys,
              const Rows& index_keys) const {
    const KeyCompressorSpec& index = spec_.compressor;
    if (!index.has_index()) return keys;
    const auto dim = static_cast<size_t>(index.index_dim);
    Row queries = product("indexer.attn_q_b", latent);
    rotate(queries, dim, position);
    const Row worth = product("indexer.proj", row);
    std::vector<std::pair<double, size_t>> scores;
    for (size_t s = 0; s < keys.size(); ++s) {
      double score = 0;
      for (size_t h = 0; h < worth.size(); ++h) {
        const auto query = queries.begin() + static_cast<std::ptrdiff_t>(h * dim);
        score += worth[h] * std::max(std::inner_product(index_keys[s].begin(), index_keys[s].end(),
                                                        query, 0.0),
                                     0.0);
      }
      scores.emplace_back(score, s);
    }
    std::ranges::stable_sort(scores, std::greater<>(), &std::pair<double, size_t>::first);
    scores.resize(std::min(scores.size(), static_cast<size_t>(index.index_top)));
    Rows left;
    for (const auto& [score, s] : scores) left.push_back(keys[s]);
    return left;
  }

  // What each head sees of these, side by side.
  Row seen(const Row& queries, const Rows& keys) const {
    const auto dim = static_cast<size_t>(spec_.head_dim);
    const std::vector<float>& sinks = tensors_->values("attn_sinks.weight");
    Row all;
    for (size_t h = 0; h < sinks.size(); ++h) {
      const auto query = queries.begin() + static_cast<std::ptrdiff_t>(h * dim);
      double sum = std::exp(sinks[h]);
      Row of_head(dim);
      for (const Row& key : keys) {
        const double weight =
            std::exp(spec_.scale * std::inner_product(key.begin(), key.end(), query, 0.0));
        sum += weight;
        for (size_t d = 0; d < dim; ++d) of_head[d] += weight * key[d];
      }
      for (const double value : of_head) all.push_back(value / sum);
    }
    return all;
  }

  Rows expected(const TestMatrix& x) const {
    const auto dim = static_cast<size_t>(spec_.head_dim);
    Rows rows, keys, shared, index_keys, out;
    for (const Row& row : rows_of(x)) {
      const auto position = static_cast<int32_t>(rows.size());
      rows.push_back(row);
      const Row latent = normed("attn_q_a_norm", product("attn_q_a", row));
      Row queries;
      const Row plain = product("attn_q_b", latent);
      for (size_t h = 0; h < plain.size(); h += dim) {
        const auto first = plain.begin() + static_cast<std::ptrdiff_t>(h);
        const Row head = rms_normed(Row(first, first + static_cast<std::ptrdiff_t>(dim)),
                                    std::vector<float>(dim, 1.0f), spec_.norm_eps);
        queries.insert(queries.end(), head.begin(), head.end());
      }
      rotate(queries, dim, position);
      Row key = normed("attn_kv_norm", product("attn_kv", row));
      rotate(key, dim, position);
      keys.push_back(std::move(key));
      const KeyCompressorSpec& by = spec_.compressor;
      if (by.is_here() && (position + 1) % by.rate == 0) {
        shared.push_back(shared_key("attn_compress", rows, shared.size(), dim));
        if (by.has_index()) {
          index_keys.push_back(shared_key("indexer.compress", rows, index_keys.size(),
                                          static_cast<size_t>(by.index_dim)));
        }
      }
      Rows all = by.is_here() ? chosen(row, latent, position, shared, index_keys) : Rows();
      for (int32_t p = std::max(0, position - spec_.window + 1); p <= position; ++p) {
        all.push_back(keys[static_cast<size_t>(p)]);
      }
      Row made = seen(queries, all);
      rotate(made, dim, -position);
      out.push_back(product("attn_output_b", by_groups(made)));
      for (size_t i = 0; i < row.size(); ++i) out.back()[i] += row[i];
    }
    return out;
  }

  // Each group's heads times its rows of the matrix.
  Row by_groups(const Row& heads) const {
    const std::vector<float>& matrix = tensors_->values("attn_output_a.weight");
    const auto rank = static_cast<size_t>(spec_.group_rank);
    const size_t width = heads.size() / static_cast<size_t>(spec_.groups);
    Row out;
    for (size_t r = 0; r < rank * static_cast<size_t>(spec_.groups); ++r) {
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += matrix[r * width + i] * heads[r / rank * width + i];
      out.push_back(sum);
    }
    return out;
  }

  void expect_plain_loops(const CompressedAttentionSpec& spec) {
    load(spec);
    Rng rng(3);
    const TestMatrix x(rng, kRows, kHidden);
    EXPECT_TRUE(rows_close(matrix_of(run(x, {kRows})), expected(x)));
  }

  CompressedAttentionSpec spec_;
  std::optional<PartPass> pass_;
  std::unique_ptr<Mixer> part_;
  std::optional<MadeTensors> tensors_;
  std::optional<PartCache> pages_, shared_pages_;
  std::map<std::string, std::vector<float>> given_;
};

TEST_F(CompressedAttention, IsPlainLoopsOfAWindowAlone) {
  expect_plain_loops(spec_of(0, false, 0));
}

// Runs that parts of a page are, that no page is a multiple of, and that are longer than a page.
TEST_F(CompressedAttention, IsPlainLoopsOfKeysThatTokensShare) {
  for (const int32_t rate : {2, 4, 5, 16, 20}) {
    SCOPED_TRACE(rate);
    expect_plain_loops(spec_of(rate, false, 0));
  }
}

TEST_F(CompressedAttention, IsPlainLoopsOfOverlappingRunsThatAnIndexChooses) {
  for (const int32_t rate : {2, 4, 3, 20}) {
    SCOPED_TRACE(rate);
    expect_plain_loops(spec_of(rate, true, rate == 20 ? 1 : 4));
  }
}

TEST_F(CompressedAttention, AnIndexThatChoosesAllHasTheBitsOfNone) {
  Rng rng(4);
  const TestMatrix x(rng, kRows, kHidden);
  load(spec_of(4, true, 100));
  const Rows all = run(x, {kRows});
  for (const std::string& name : tensors_->names()) given_[name] = tensors_->values(name);
  load(spec_of(4, true, 0));
  EXPECT_EQ(run(x, {kRows}), all);
}

// However a text is cut into steps, runs of tokens in the middle too; and where a step's last rows
// were not the text's and are computed again.
TEST_F(CompressedAttention, BitsDoNotDependOnTheSteps) {
  Rng rng(5);
  const TestMatrix x(rng, kRows, kHidden), other(rng, kRows, kHidden);
  for (const auto& [rate, top] : {std::pair(4, 5), {3, 4}, {20, 0}}) {
    SCOPED_TRACE(rate);
    const CompressedAttentionSpec spec = spec_of(rate, top > 0, top);
    load(spec);
    const Rows whole = run(x, {kRows});
    for (const auto& steps : {std::vector<int32_t>(kRows, 1), {1, 2, 5, 17, 28}, {30, 23}}) {
      load(spec);
      EXPECT_EQ(run(x, steps), whole);
    }
    load(spec);
    run(other, {kRows});  // rejected, all of it
    EXPECT_EQ(run(x, {7, 46}), whole);
  }
}

TEST_F(CompressedAttention, AGpuIsRefusedByName) {
  const auto part = make_part(spec_of(4, true, 5), kHidden);
  const Status status = part->check_device({.kind = DeviceKind::kCuda}, DType::kBF16);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("no kernels on a GPU yet: use --device cpu"), std::string::npos);
}

}  // namespace
}  // namespace headrace::compressed_attention_mixer_test
