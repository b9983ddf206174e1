#include "models/parts/attention_mixer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/parts/part_fixture.h"

namespace headrace::attention_mixer_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kRows = 37;
constexpr size_t kDim = 8;

AttentionSpec grouped() {
  return {.heads = 6, .kv_heads = 2, .head_dim = kDim, .scale = 0.4f, .qk_norm_eps = 1e-5f};
}

// The angles of positions [0, count) under a rotation of all dimensions.
class Angles {
 public:
  explicit Angles(int32_t count) : cos_(count, kDim / 2), sin_(count, kDim / 2) {
    for (int32_t t = 0; t < count; ++t) {
      for (size_t i = 0; i < kDim / 2; ++i) {
        cos_.at(t, static_cast<int64_t>(i)) = static_cast<float>(std::cos(angle(t, i)));
        sin_.at(t, static_cast<int64_t>(i)) = static_cast<float>(std::sin(angle(t, i)));
      }
    }
    both_ = {cos_.view(), sin_.view()};
  }
  std::span<const RopeAngles> tables() const { return {&both_, 1}; }
  static double angle(int32_t position, size_t i) {
    return position * std::pow(100.0, -2.0 * static_cast<double>(i) / kDim);
  }

 private:
  TestMatrix cos_, sin_;
  RopeAngles both_;
};

// One mixer with its weights and cache.
class Mixing {
 public:
  explicit Mixing(const AttentionSpec& spec, bool in_place = true)
      : spec_(spec),
        pass_(kRows, kHidden, in_place),
        part_(make_part(spec, kHidden)),
        tensors_(pass_.device()),
        cache_(pass_.device(), part_->kept(), kRows) {}

  MadeTensors& tensors() { return tensors_; }
  const PartCache& cache() const { return cache_; }
  void load() { ASSERT_TRUE(part_->load(tensors_).ok()); }

  // Rows of x + mixer(x) that are read.
  TestMatrix run(const TestMatrix& x, std::optional<int32_t> read_last = {}) {
    const Angles angles(static_cast<int32_t>(x.rows()));
    return pass_.run(*part_, cache_, x, {.angles = angles.tables(), .read_last = read_last});
  }

  Rows expected(const TestMatrix& x) const {
    Rows keys, values, index_keys, mixed;
    for (const Row& row : rows_of(x)) {
      const auto position = static_cast<int32_t>(keys.size());
      keys.push_back(turned(projected("attn_k", row), "attn_k_norm", position));
      values.push_back(projected("attn_v", row));
      const Row q = turned(projected("attn_q", row), "attn_q_norm", position);
      if (spec_.index.heads > 0) {
        index_keys.push_back(index_head(projected("indexer.attn_k", row), 0, "k_norm", position));
      }
      Row seen = attended(q, keys, values, seen_by_heads(row, index_keys, position));
      if (spec_.gated) gate(row, seen);
      if (spec_.sub_norm) {
        seen = rms_normed(seen, tensors_.values("attn_sub_norm.weight"), spec_.qk_norm_eps);
      }
      mixed.push_back(times(tensors_.values("attn_output.weight"), seen));
      for (size_t i = 0; i < row.size(); ++i) mixed.back()[i] += row[i];
    }
    return mixed;
  }

 private:
  Row projected(const std::string& name, const Row& x) const {
    Row y = times(tensors_.values(name + ".weight"), x);
    if (spec_.qkv_bias) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += tensors_.values(name + ".bias")[i];
    }
    return y;
  }

  // Normalised and rotated.
  Row turned(Row heads, const std::string& norm, int32_t position) const {
    if (spec_.qk_norm == QkNorm::kRow) {
      heads = rms_normed(heads, tensors_.values(norm + ".weight"), spec_.qk_norm_eps);
    }
    for (size_t first = 0; first < heads.size(); first += kDim) {
      Row head(heads.begin() + static_cast<int64_t>(first),
               heads.begin() + static_cast<int64_t>(first + kDim));
      if (spec_.qk_norm == QkNorm::kHead) {
        head = rms_normed(head, tensors_.values(norm + ".weight"), spec_.qk_norm_eps);
      }
      if (spec_.qk_norm == QkNorm::kHeadLayer || spec_.qk_norm == QkNorm::kEachLayer) {
        head = layer_normed(head, norm, first);
      }
      Row turned = head;
      for (size_t i = 0; i < kDim / 2; ++i) {
        const double angle = Angles::angle(position, i), a = head[i], b = head[i + kDim / 2];
        turned[i] = a * std::cos(angle) - b * std::sin(angle);
        turned[i + kDim / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
      if (spec_.qk_norm == QkNorm::kHeadBehind) {
        turned = rms_normed(turned, tensors_.values(norm + ".weight"), spec_.qk_norm_eps);
      }
      std::ranges::copy(turned, heads.begin() + static_cast<int64_t>(first));
    }
    return heads;
  }
  // The head whose components begin at `first` of its row.
  Row layer_normed(const Row& head, const std::string& norm, size_t first) const {
    const bool each = spec_.qk_norm == QkNorm::kEachLayer;
    const std::vector<float>& weights = tensors_.values(norm + ".weight");
    const double mean = std::accumulate(head.begin(), head.end(), 0.0) / kDim;
    double squares = 0;
    for (const double v : head) squares += (v - mean) * (v - mean);
    const double factor = 1 / std::sqrt(squares / kDim + double{spec_.qk_norm_eps});
    Row out(kDim);
    for (size_t i = 0; i < kDim; ++i) {
      const double bias = each ? 0.0 : tensors_.values(norm + ".bias")[i];
      out[i] = (head[i] - mean) * factor * weights[each ? first + i : i] + bias;
    }
    return out;
  }

  // Of gates in a tensor of their own.
  void gate(const Row& row, Row& seen) const {
    const Row gates = times(tensors_.values("attn_gate.weight"), row);
    for (size_t i = 0; i < seen.size(); ++i) {
      const double g = gates[i / (seen.size() / gates.size())];
      const bool softplus = spec_.gates.kind == GateKind::kSoftplus;
      seen[i] *= softplus ? std::log1p(std::exp(g)) : 1 / (1 + std::exp(-g));
    }
  }

  // A head of the index's, normalised and rotated at its front.
  Row index_head(const Row& heads, size_t head, const std::string& norm, int32_t position) const {
    const auto dim = static_cast<int64_t>(spec_.index.dim);
    const auto begin = heads.begin() + static_cast<int64_t>(head) * dim;
    Row x = rms_normed(Row(begin, begin + dim), tensors_.values("indexer." + norm + ".weight"),
                       spec_.index.norm_eps);
    for (size_t i = 0; i < kDim / 2; ++i) {
      const double angle = Angles::angle(position, i), a = x[i], b = x[i + kDim / 2];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + kDim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    return x;
  }

  using Positions = std::vector<size_t>;
  // What each key head attends: all that is in the window, or the blocks that it chooses.
  std::vector<Positions> seen_by_heads(const Row& row, const Rows& index_keys,
                                       int32_t position) const {
    const auto end = static_cast<size_t>(position) + 1, heads = static_cast<size_t>(spec_.kv_heads);
    const size_t width = spec_.window == 0 ? end : std::min(end, size_t(spec_.window));
    Positions all(width);
    std::iota(all.begin(), all.end(), end - width);
    std::vector<Positions> seen(heads, all);
    if (spec_.index.heads == 0) return seen;
    const BlockRule& rule = spec_.index.rule;
    const auto tokens = static_cast<size_t>(rule.tokens);
    const Row queries = projected("indexer.attn_q", row);
    for (size_t head = 0; head < heads; ++head) {
      const Row q = index_head(queries, head, "q_norm", position);
      std::vector<std::pair<double, size_t>> blocks;  // of the best score, negative, first
      for (size_t s = 0; s < end; ++s) {
        if (s % tokens == 0) blocks.emplace_back(HUGE_VAL, s / tokens);
        const double score = std::inner_product(q.begin(), q.end(), index_keys[s].begin(), 0.0);
        const bool is_local = s / tokens + static_cast<size_t>(rule.local) > (end - 1) / tokens;
        blocks.back().first = std::min(blocks.back().first, is_local ? -HUGE_VAL : -score);
      }
      std::ranges::sort(blocks);
      blocks.resize(std::min(blocks.size(), static_cast<size_t>(rule.top)));
      std::erase_if(seen[head], [&](size_t s) {
        return std::ranges::none_of(blocks, [&](const auto& b) { return b.second == s / tokens; });
      });
    }
    return seen;
  }

  // `seen`: by each key head.
  Row attended(const Row& q, const Rows& keys, const Rows& values,
               const std::vector<Positions>& seen) const {
    const auto value_dim = static_cast<size_t>(spec_.value_head_dim());
    Row out(static_cast<size_t>(spec_.heads) * value_dim, 0.0);
    const size_t group = static_cast<size_t>(spec_.heads / spec_.kv_heads);
    for (size_t head = 0; head < static_cast<size_t>(spec_.heads); ++head) {
      const size_t from = head * kDim, kv = head / group * kDim;
      const Positions& positions = seen[head / group];
      Row weights;
      for (const size_t s : positions) {
        double dot = 0;
        for (size_t d = 0; d < kDim; ++d) dot += q[from + d] * keys[s][kv + d];
        double score = dot * double{spec_.scale};
        if (spec_.soft_cap > 0) score = spec_.soft_cap * std::tanh(score / spec_.soft_cap);
        weights.push_back(std::exp(score));
      }
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t i = 0; i < positions.size(); ++i) {
        for (size_t d = 0; d < value_dim; ++d) {
          out[head * value_dim + d] +=
              weights[i] / sum * values[positions[i]][head / group * value_dim + d];
        }
      }
    }
    return out;
  }

  const AttentionSpec spec_;
  PartPass pass_;  // whose device outlives the weights
  const std::unique_ptr<Mixer> part_;
  MadeTensors tensors_;
  PartCache cache_;
};

TestMatrix some_rows(int32_t count = kRows) {
  Rng rng(5);
  return TestMatrix(rng, count, kHidden, 0.7f);
}

// Values of another size than keys, one gate a head, a norm of what heads see.
std::vector<AttentionSpec> uneven() {
  std::vector<AttentionSpec> specs(4, grouped());
  specs[0].value_dim = 5;
  specs[1].value_dim = 12;
  specs[1].sub_norm = true;
  specs[2].gated = specs[2].gates.apart = specs[2].gates.of_heads = true;
  specs[2].qkv_bias = true;
  specs[3].gated = specs[3].gates.apart = true;
  specs[3].gates.kind = GateKind::kSoftplus;
  return specs;
}

TEST(AttentionMixer, EqualsPlainLoops) {
  std::vector<AttentionSpec> specs(9, grouped());
  specs[1].qk_norm = QkNorm::kHead;
  specs[2].qk_norm = QkNorm::kRow;
  specs[3].qkv_bias = true;
  specs[4].window = 5;
  specs[5].soft_cap = 2;
  specs[6].qk_norm = QkNorm::kHeadBehind;
  specs[7].qk_norm = QkNorm::kHeadLayer;
  specs[8].qk_norm = QkNorm::kEachLayer;
  for (const AttentionSpec& spec : uneven()) specs.push_back(spec);
  for (size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(i);
    Mixing mixing(specs[i]);
    mixing.load();
    EXPECT_TRUE(rows_close(mixing.run(some_rows()), mixing.expected(some_rows()), 3e-5));
  }
}

AttentionSpec indexed(const BlockRule& rule) {
  AttentionSpec spec = grouped();
  spec.index = {.heads = spec.kv_heads, .dim = 11, .rule = rule, .norm_eps = 1e-5f};
  return spec;
}

// Blocks of keys that are parts of pages, and that are pages.
TEST(AttentionMixer, HeadsAttendTheBlocksThatTheirIndexChooses) {
  for (const BlockRule& rule :
       {BlockRule{4, 3, 1}, {3, 5, 2}, {4, 2, 0}, {16, 2, 1}, {16, 1, 1}, {16, 1, 0}}) {
    SCOPED_TRACE(std::to_string(rule.tokens) + " " + std::to_string(rule.top));
    AttentionSpec spec = indexed(rule);
    spec.value_dim = rule.tokens == 3 ? 5 : 0;
    Mixing mixing(spec);
    mixing.load();
    EXPECT_TRUE(rows_close(mixing.run(some_rows()), mixing.expected(some_rows()), 3e-5));
  }
}

// Which rows attend the cache as it lies is no matter of their bits.
TEST(AttentionMixer, AnIndexThatChoosesAllHasTheBitsOfNone) {
  Mixing plain(grouped());
  plain.load();
  const TestMatrix expected = plain.run(some_rows());
  for (const BlockRule& rule : {BlockRule{4, 10, 1}, {16, 3, 1}, {64, 1, 1}}) {
    Mixing all(indexed(rule));
    for (const std::string& name : plain.tensors().names()) {
      all.tensors().set(name, plain.tensors().values(name));
    }
    all.load();
    EXPECT_TRUE(same_bits(all.run(some_rows()), expected));
  }
}

TEST(AttentionMixer, AnIndexOfBlocksIsRefusedOnAGpu) {
  DeviceTraits gpu;
  gpu.kind = DeviceKind::kCuda;
  const Status status = BlockIndex(indexed({4, 3, 1}).index, kHidden, 0).check_device(gpu);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "an index of blocks of keys has no kernels on a GPU yet: use --device cpu");
}

TEST(AttentionMixer, ScratchSharedOrApartGivesTheSameBits) {
  Mixing shared(grouped(), true), apart(grouped(), false);
  shared.load();
  apart.load();
  EXPECT_TRUE(same_bits(apart.run(some_rows()), shared.run(some_rows())));
}

// Of the rows kept all is as if every row were; of the others the cache alone.
TEST(AttentionMixer, KeptRowsHaveTheBitsThatTheyHaveAmongAll) {
  std::vector<AttentionSpec> specs = uneven();
  specs.push_back(grouped());
  for (const AttentionSpec& spec : specs) {
    Mixing all(spec);
    all.load();
    const TestMatrix every = all.run(some_rows());
    for (const int32_t keep : {0, 1, 18}) {
      SCOPED_TRACE(keep);
      Mixing some(spec);
      some.load();
      const TestMatrix kept = some.run(some_rows(), keep);
      EXPECT_TRUE(some.cache().same_bits(all.cache()));
      if (keep == 0) continue;
      ASSERT_EQ(kept.rows(), keep);
      const int64_t first = kRows - keep;
      for (int32_t t = 0; t < keep; ++t) {
        for (int64_t i = 0; i < kHidden; ++i) EXPECT_EQ(kept.at(t, i), every.at(first + t, i));
      }
    }
  }
}

// q, k and v in one matrix, and rows of q and k in the order of interleaved rotation: the same
// weights under other names and orders.
TEST(AttentionMixer, FusedAndInterleavedTensorsAreTheSameWeights) {
  AttentionSpec spec = grouped();
  spec.qkv_bias = true;
  Mixing plain(spec);
  plain.load();
  const TestMatrix expected = plain.run(some_rows());
  spec.qk_rows_interleaved = true;
  for (const QkvTensors tensors : {QkvTensors::kSeparate, QkvTensors::kFused}) {
    spec.qkv = tensors;
    Mixing other(spec);
    for (const auto& [kind, columns] : {std::pair(".weight", size_t{kHidden}), {".bias", 1}}) {
      std::vector<float> fused;
      for (const std::string name : {"attn_q", "attn_k", "attn_v"}) {
        const std::vector<float>& from = plain.tensors().values(name + kind);
        std::vector<float> to = from;
        for (size_t row = 0; row < from.size() / columns && name != "attn_v"; ++row) {
          const size_t r = row % kDim, head = row - r;
          const size_t target = head + 2 * (r % (kDim / 2)) + r / (kDim / 2);
          std::copy_n(from.begin() + static_cast<int64_t>(row * columns), columns,
                      to.begin() + static_cast<int64_t>(target * columns));
        }
        fused.insert(fused.end(), to.begin(), to.end());
        other.tensors().set(name + kind, std::move(to));
      }
      other.tensors().set(std::string("attn_qkv") + kind, std::move(fused));
    }
    other.tensors().set("attn_output.weight", plain.tensors().values("attn_output.weight"));
    other.load();
    EXPECT_TRUE(same_bits(other.run(some_rows()), expected));
  }
}

TEST(AttentionMixer, KeepsWhatItsSpecSays) {
  AttentionSpec spec = grouped();
  spec.window = 64;
  const auto part = make_part(spec, kHidden);
  EXPECT_EQ(part->kept().kv_heads, 2);
  EXPECT_EQ(part->kept().k_dim, static_cast<int32_t>(kDim));
  EXPECT_EQ(part->kept().window, 64);
  EXPECT_EQ(part->kept().chunk, 0);
  spec.chunk = 64;
  EXPECT_EQ(make_part(spec, kHidden)->kept().chunk, 64);
  EXPECT_EQ(part->query_heads(), 6);
  EXPECT_EQ(part->scratch_columns(true), std::vector<int64_t>({10 * kDim, 6 * kDim}));
  spec.value_dim = 12;
  EXPECT_EQ(make_part(spec, kHidden)->kept().v_dim, 12);
}

}  // namespace
}  // namespace headrace::attention_mixer_test
