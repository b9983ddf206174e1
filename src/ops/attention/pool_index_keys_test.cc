#include "ops/attention/pool_index_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"

namespace headrace::pool_index_keys_test {
namespace {

constexpr int32_t kTokens = 75, kPages = 5, kDim = 10, kPairs = 3, kTableOffset = 2;
constexpr float kNormEps = 1e-5f;

class Pool {
 public:
  Pool(int32_t block, KvFormat format) : block_(block), keys_(rng_, kTokens, kDim) {
    kv_ = {.k_format = format, .v_format = format, .kv_heads = 1, .k_dim = 8, .v_dim = 6};
    kv_.index_dim = kDim;
    kv_.v_offset = k_part_bytes(kv_);
    kv_.index_offset = kv_.v_offset + v_part_bytes(kv_);
    kv_.block_stride = layer_part_bytes(kv_);
    memory_.resize(static_cast<size_t>(kPages * kv_.block_stride), std::byte{0xff});  // NaN
    kv_.base = memory_.data();
    for (int32_t b = 0; b < kPages; ++b) table_.push_back(kPages - 1 - b);
    table_.insert(table_.begin(), kTableOffset, 1 << 28);
  }

  // Keeps the keys of places [first, first + count) and pools the blocks that they complete.
  void step(int32_t first, int32_t count, std::span<const uint64_t> paths = {}) {
    for (int32_t place = first; place < first + count; ++place) {
      const float* const row = f32_row(keys_.view(), place);
      store_index_key(kv_, slot(place), row);
    }
    const AttentionSequence sequence{.row_first = 0,
                                     .row_count = count,
                                     .kv_length = first + count,
                                     .block_table = table_.data(),
                                     .paths = paths.empty() ? nullptr : paths.data(),
                                     .tree_rows = static_cast<int32_t>(paths.size())};
    std::vector<CompleteBlock> blocks;
    std::vector<int32_t> firsts;
    for (int32_t r = 0; r < count; ++r) {
      const int32_t behind = sequence.position(r) + 1;
      if (behind % block_ != 0) continue;
      blocks.push_back({&sequence, r});
      firsts.push_back(behind - block_);
    }
    TestMatrix cos(std::ssize(blocks), kPairs, 0), sin(std::ssize(blocks), kPairs, 0);
    for (size_t b = 0; b < blocks.size(); ++b) {
      for (int64_t i = 0; i < kPairs; ++i) {
        cos.at(static_cast<int64_t>(b), i) = static_cast<float>(std::cos(angle(firsts[b], i)));
        sin.at(static_cast<int64_t>(b), i) = static_cast<float>(std::sin(angle(firsts[b], i)));
      }
    }
    TestDevice device = TestDevice::cpu(3);
    OpContext context = device.context();
    pool_index_keys(context, {.cache = kv_,
                              .table_offset = kTableOffset,
                              .tokens = block_,
                              .norm = norm_.data(),
                              .norm_eps = kNormEps,
                              .cos = cos.view(),
                              .sin = sin.view(),
                              .blocks = blocks});
  }

  // Of a block of these places, of which the first is at a position, in doubles.
  std::vector<double> expected(const std::vector<int32_t>& places, int32_t position) {
    std::vector<double> key(kDim);
    double squares = 0;
    for (size_t d = 0; d < key.size(); ++d) {
      for (const int32_t place : places) {
        key[d] += double{keys_.at(place, static_cast<int64_t>(d))} / block_;
      }
      squares += key[d] * key[d] / kDim;
    }
    for (size_t d = 0; d < key.size(); ++d) key[d] *= norm_[d] / std::sqrt(squares + kNormEps);
    for (size_t i = 0; i < kPairs; ++i) {
      const double a = key[i], b = key[i + kPairs], by = angle(position, static_cast<int64_t>(i));
      key[i] = a * std::cos(by) - b * std::sin(by);
      key[i + kPairs] = b * std::cos(by) + a * std::sin(by);
    }
    return key;
  }
  void expect_key(int32_t place, const std::vector<double>& key, double error) {
    for (int32_t d = 0; d < kDim; ++d) {
      EXPECT_NEAR(number(place, d), key[static_cast<size_t>(d)], error) << place << " " << d;
    }
  }
  double number(int32_t place, int32_t d) {
    return load_number(index_head(kv_, slot(place) / 16), slot(place) % 16, d);
  }
  double own(int32_t place, int32_t d) { return keys_.at(place, d); }
  bool operator==(const Pool& other) const { return memory_ == other.memory_; }

 private:
  static double angle(int32_t position, int64_t i) {
    return position * std::pow(100.0, -static_cast<double>(i) / kPairs);
  }
  int64_t slot(int32_t place) const {
    return int64_t{table_[static_cast<size_t>(kTableOffset + place / 16)]} * 16 + place % 16;
  }

  const int32_t block_;
  Rng rng_{5};
  TestMatrix keys_;
  std::vector<float> norm_ = random_floats(rng_, kDim);
  KvLayerView kv_;
  std::vector<std::byte> memory_;
  std::vector<int32_t> table_;
};

std::vector<int32_t> places_of(int32_t first, int32_t count) {
  std::vector<int32_t> places;
  for (int32_t p = first; p < first + count; ++p) places.push_back(p);
  return places;
}

TEST(PoolIndexKeys, TheLastPlaceOfABlockHasItsKeyAndOthersTheirOwn) {
  for (const int32_t block : {1, 4, 7, 16, 32}) {
    for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16}) {
      Pool pool(block, format);
      pool.step(0, kTokens);
      const double error = format == KvFormat::kF32 ? 1e-5 : 5e-3;
      for (int32_t place = 0; place < kTokens; ++place) {
        if ((place + 1) % block == 0) {
          const int32_t first = place + 1 - block;
          pool.expect_key(place, pool.expected(places_of(first, block), first), error);
        } else {
          EXPECT_NEAR(pool.number(place, 3), pool.own(place, 3), error);
        }
      }
    }
  }
}

TEST(PoolIndexKeys, BitsDoNotDependOnTheSteps) {
  Pool whole(7, KvFormat::kF32);
  whole.step(0, kTokens);
  for (const int32_t step : {1, 5, 20}) {
    Pool cut(7, KvFormat::kF32);
    for (int32_t first = 0; first < kTokens; first += step) {
      cut.step(first, std::min(step, kTokens - first));
    }
    EXPECT_TRUE(cut == whole) << step;
  }
}

// A block of a row of a tree is of the row's own path.
TEST(PoolIndexKeys, RowsOfATreePoolTheirPaths) {
  Pool pool(3, KvFormat::kF32);
  pool.step(0, 8);
  // Positions 8; 9, 9; 10, 10; 11.
  const uint64_t paths[] = {0b1, 0b11, 0b101, 0b1011, 0b10101, 0b110101};
  pool.step(8, 6, paths);
  pool.expect_key(8, pool.expected({6, 7, 8}, 6), 1e-5);
  pool.expect_key(13, pool.expected({10, 12, 13}, 9), 1e-5);
  for (const int32_t place : {9, 10, 11, 12}) EXPECT_EQ(pool.number(place, 0), pool.own(place, 0));
}

}  // namespace
}  // namespace headrace::pool_index_keys_test
