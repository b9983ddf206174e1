// What tests of attention on a CPU share: sequences over one cache, steps over pieces of them, and
// the cases that every kernel is swept over.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"
#include "tensor/half.h"

namespace headrace::attention_fixture {

inline constexpr int32_t kBlock = 16;

struct Heads {
  int32_t query, kv, dim;
  int32_t v_dim = dim;
};

struct Formats {
  KvFormat k;
  KvFormat v = k;
};

// One sequence: its queries, keys and values for every position, and the blocks it was given.
struct Sequence {
  TestMatrix q;          // [length, Hq d]
  std::vector<float> k;  // [length, Hkv, d]
  std::vector<float> v;  // [length, Hkv, v_dim]
  std::vector<int32_t> blocks;
  int32_t length;
};

// Without values that are subnormal as F16: qemu's vcvtph2ps obeys denormals-are-zero, that of CPUs
// does not.
inline std::vector<float> random_cached(Rng& rng, int64_t count) {
  std::vector<float> values = random_floats(rng, count);
  for (float& value : values) value = std::abs(value) < 0x1p-14f ? 0.0f : value;
  return values;
}

// Values that BF16 holds: what is left of its error are the weights of the softmax.
inline void round_to_bfloat16(float& value) { value = bfloat16_to_float(float_to_bfloat16(value)); }

// Sequences over one cache whose every byte is 0x7f (NaN) until a token is written.
class Setting {
 public:
  Setting(Heads heads, Formats formats, const std::vector<int32_t>& lengths)
      : heads_(heads), rng_(11) {
    kv_ = {.k_format = formats.k,
           .v_format = formats.v,
           .kv_heads = heads.kv,
           .k_dim = heads.dim,
           .v_dim = heads.v_dim};
    kv_.v_offset = k_part_bytes(kv_);
    kv_.block_stride = kv_.v_offset + v_part_bytes(kv_) + 64;  // other layers lie between
    int32_t block_count = 0;
    for (const int32_t length : lengths) block_count += (length + kBlock - 1) / kBlock;
    cache_.resize(static_cast<size_t>(block_count * kv_.block_stride));
    kv_.base = cache_.data();
    for (int32_t b = 0; b < block_count; ++b) free_.push_back(b);
    for (const int32_t length : lengths) sequences_.push_back(make(length));
    forget();
  }

  void forget() { std::memset(cache_.data(), 0x7f, cache_.size()); }

  void round_inputs_to_bfloat16() {
    for (Sequence& s : sequences_) {
      for (float& value : s.k) round_to_bfloat16(value);
      for (float& value : s.v) round_to_bfloat16(value);
      for (int64_t t = 0; t < s.q.rows(); ++t) {
        for (int64_t i = 0; i < s.q.columns(); ++i) round_to_bfloat16(s.q.at(t, i));
      }
    }
  }

  // Writes tokens [first, last) of a sequence to the cache.
  void write(size_t index, int32_t first, int32_t last) {
    const Sequence& s = sequences_[index];
    for (int32_t t = first; t < last; ++t) {
      const int64_t slot = int64_t{s.blocks[static_cast<size_t>(t / kBlock)]} * kBlock + t % kBlock;
      for (int32_t head = 0; head < heads_.kv; ++head) {
        const int64_t row = int64_t{t} * heads_.kv + head;
        store_key(kv_, slot, head, s.k.data() + row * heads_.dim);
        if (!kv_.v_aliases_k) store_value(kv_, slot, head, s.v.data() + row * heads_.v_dim);
      }
    }
  }

  // Tokens of which `other` has the same numbers, in a format that holds them.
  void copy_meaning(const Setting& other) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      for (int32_t t = 0; t < sequences_[i].length; ++t) {
        for (int32_t head = 0; head < heads_.kv; ++head) copy_meaning(other, i, t, head);
      }
    }
  }

  // Token `to` of a sequence becomes token `from` of another.
  void copy_token(size_t from_sequence, int32_t from, size_t to_sequence, int32_t to) {
    Sequence &source = sequences_[from_sequence], &target = sequences_[to_sequence];
    const auto copy = [&](const std::vector<float>& in, std::vector<float>& out, int64_t width) {
      std::copy_n(in.begin() + from * width, width, out.begin() + to * width);
    };
    copy(source.k, target.k, int64_t{heads_.kv} * heads_.dim);
    copy(source.v, target.v, int64_t{heads_.kv} * heads_.v_dim);
    for (int64_t i = 0; i < source.q.columns(); ++i) target.q.at(to, i) = source.q.at(from, i);
  }

  // Whether values are read in keys; what is written of them is not kept then.
  void alias_values(bool alias) { kv_.v_aliases_k = alias; }

  const KvLayerView& kv() const { return kv_; }
  Heads heads() const { return heads_; }
  Sequence& sequence(size_t index) { return sequences_[index]; }
  size_t count() const { return sequences_.size(); }

 private:
  void copy_meaning(const Setting& other, size_t index, int32_t t, int32_t head) {
    Sequence& s = sequences_[index];
    const int64_t slot = int64_t{s.blocks[static_cast<size_t>(t / kBlock)]} * kBlock + t % kBlock;
    const int64_t row = int64_t{t} * heads_.kv + head;
    for (int32_t d = 0; d < heads_.dim; ++d) {
      s.k[static_cast<size_t>(row * heads_.dim + d)] = load_key(other.kv_, slot, head, d);
    }
    for (int32_t d = 0; d < heads_.v_dim; ++d) {
      s.v[static_cast<size_t>(row * heads_.v_dim + d)] = load_value(other.kv_, slot, head, d);
    }
  }

  Sequence make(int32_t length) {
    const int64_t row = int64_t{heads_.kv} * heads_.dim;
    Sequence s{TestMatrix(rng_, length, int64_t{heads_.query} * heads_.dim),
               random_cached(rng_, length * row),
               random_cached(rng_, length * heads_.kv * heads_.v_dim),
               {},
               length};
    for (int32_t b = 0; b < (length + kBlock - 1) / kBlock; ++b) {
      const size_t pick = rng_.below(free_.size());
      s.blocks.push_back(free_[pick]);
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    return s;
  }

  Heads heads_;
  Rng rng_;
  KvLayerView kv_;
  std::vector<std::byte> cache_;
  std::vector<int32_t> free_;
  std::vector<Sequence> sequences_;
};

struct Options {
  int32_t window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;
  bool slopes = false;
  int32_t relative = 0;  // the extent of biases by distance
  int32_t chunk = 0;     // no more than the window
  bool values_in_keys = false;
};

inline std::vector<float> slopes_of(int32_t heads) {
  std::vector<float> slopes;
  for (int32_t h = 0; h < heads; ++h) slopes.push_back(0.25f / static_cast<float>(1 << (h % 5)));
  return slopes;
}

// Of biases by distance; a row's numbers are the first of its queries.
inline constexpr int32_t kProfiles = 3;
inline std::vector<float> profiles_of(int32_t extent) {
  Rng rng(11);
  return relative_profiles(random_floats(rng, int64_t{kProfiles} * extent, 1.0f), kProfiles);
}

inline std::vector<float> sinks_of(int32_t heads) {
  std::vector<float> sinks;
  for (int32_t h = 0; h < heads; ++h) sinks.push_back(0.7f * static_cast<float>(h % 7) - 2.0f);
  return sinks;
}

// What sequences name are tables of another layer; this one's lie so many entries behind them.
inline constexpr int32_t kTableOffset = 5;

// Rows [first, last) of a sequence in one step; the last may be a tree, or the last of one.
struct Piece {
  size_t sequence;
  int32_t first, last;
  std::vector<uint64_t> paths = {};
};

// Computes one batch of pieces, after writing their keys, and puts each row into results[sequence].
// False where the kernel does not support the case.
inline bool run_step(OpContext context, const Kernel<AttentionArgs>& kernel, Setting& setting,
                     const Options& options, const std::vector<Piece>& pieces,
                     std::vector<TestMatrix>& results) {
  const Heads heads = setting.heads();
  int32_t rows = 0;
  std::vector<AttentionSequence> sequences;
  std::vector<std::vector<int32_t>> tables;
  for (const Piece& piece : pieces) {
    setting.write(piece.sequence, piece.first, piece.last);
    tables.push_back(setting.sequence(piece.sequence).blocks);
    // Blocks wholly behind the window of the first row, or of the tree's, were given back.
    const auto tree_first = piece.last - static_cast<int32_t>(piece.paths.size());
    const int32_t first = std::min(piece.first, tree_first);
    for (int32_t b = 0; options.window > 0 && (b + 1) * kBlock <= first + 1 - options.window; ++b) {
      tables.back()[static_cast<size_t>(b)] = 1 << 28;
    }
    tables.back().insert(tables.back().begin(), kTableOffset, 1 << 28);
    sequences.push_back({.row_first = rows,
                         .row_count = piece.last - piece.first,
                         .kv_length = piece.last,
                         .paths = piece.paths.empty() ? nullptr : piece.paths.data(),
                         .tree_rows = static_cast<int32_t>(piece.paths.size())});
    rows += piece.last - piece.first;
  }
  const int64_t columns = int64_t{heads.query} * heads.dim;
  const int64_t out_columns = int64_t{heads.query} * heads.v_dim;
  TestMatrix q(rows, columns), out(rows, out_columns);
  TestMatrix numbers(rows, int64_t{heads.query} * kProfiles);
  const std::vector<float> profiles = profiles_of(options.relative);
  const std::vector<float> sinks = sinks_of(heads.query), slopes = slopes_of(heads.query);
  for (size_t i = 0, row = 0; i < pieces.size(); ++i) {
    sequences[i].block_table = tables[i].data();
    for (int32_t t = pieces[i].first; t < pieces[i].last; ++t, ++row) {
      std::memcpy(&q.at(static_cast<int64_t>(row), 0),
                  &setting.sequence(pieces[i].sequence).q.at(t, 0),
                  static_cast<size_t>(columns) * 4);
      std::memcpy(&numbers.at(static_cast<int64_t>(row), 0), &q.at(static_cast<int64_t>(row), 0),
                  static_cast<size_t>(heads.query) * kProfiles * 4);
    }
  }
  const AttentionArgs args{.q = q.view(),
                           .kv = setting.kv(),
                           .sequences = sequences,
                           .table_offset = kTableOffset,
                           .scale = 1.0f / std::sqrt(static_cast<float>(heads.dim)),
                           .window = options.window,
                           .chunk = options.chunk,
                           .soft_cap = options.soft_cap,
                           .sinks = options.sinks ? sinks.data() : nullptr,
                           .slopes = options.slopes ? slopes.data() : nullptr,
                           .relative = {.count = options.relative > 0 ? kProfiles : 0,
                                        .extent = options.relative,
                                        .numbers = numbers.view(),
                                        .profiles = profiles.data()},
                           .out = out.view()};
  if (!kernel.supports(context.device.traits(), args)) return false;
  kernel.run(context, args);
  EXPECT_TRUE(out.gaps_untouched());
  for (size_t i = 0, row = 0; i < pieces.size(); ++i) {
    for (int32_t t = pieces[i].first; t < pieces[i].last; ++t, ++row) {
      std::memcpy(&results[pieces[i].sequence].at(t, 0), &out.at(static_cast<int64_t>(row), 0),
                  static_cast<size_t>(out_columns) * 4);
    }
  }
  return true;
}

inline std::vector<TestMatrix> no_results(Setting& setting) {
  std::vector<TestMatrix> results;
  for (size_t i = 0; i < setting.count(); ++i) {
    results.emplace_back(setting.sequence(i).length,
                         int64_t{setting.heads().query} * setting.heads().v_dim);
  }
  return results;
}

inline const Kernel<AttentionArgs>& reference() { return attention_kernels().all().back(); }

struct AttentionCase {
  Heads heads;
  Formats formats;
  Options options;
};

inline std::string format_name(KvFormat format) {
  return has_4_bits(format) ? "i4" : std::string(dtype_name(kv_element(format)));
}
inline std::string name_of(const testing::TestParamInfo<AttentionCase>& info) {
  const AttentionCase& c = info.param;
  const auto of_values = [](bool unlike, const std::string& text) {
    return unlike ? "_v" + text : std::string();
  };
  return format_name(c.formats.k) +
         of_values(c.formats.v != c.formats.k, format_name(c.formats.v)) + "_q" +
         std::to_string(c.heads.query) + "_kv" + std::to_string(c.heads.kv) + "_d" +
         std::to_string(c.heads.dim) +
         of_values(c.heads.v_dim != c.heads.dim, std::to_string(c.heads.v_dim)) + "_window" +
         std::to_string(c.options.window) + (c.options.soft_cap > 0 ? "_capped" : "") +
         (c.options.sinks ? "_sinks" : "") + (c.options.slopes ? "_slopes" : "") +
         (c.options.relative > 0 ? "_relative" + std::to_string(c.options.relative) : "") +
         (c.options.chunk > 0 ? "_chunk" + std::to_string(c.options.chunk) : "");
}

inline std::vector<AttentionCase> cases() {
  using enum KvFormat;
  std::vector<AttentionCase> all;
  // 9/3: three heads a group; 8/1 and 16/1: one tile and more than one; 14/2: seven heads a group.
  const Heads heads[] = {{9, 3, 64},   {4, 4, 80},  {8, 1, 96},
                         {16, 1, 128}, {2, 2, 256}, {14, 2, 64}};
  for (const Heads& h : heads) {
    for (const KvFormat format : {kF32, kF16, kInt8, kInt4}) all.push_back({h, {format}, {}});
  }
  for (const int32_t window : {1, 5, 100, 300}) {
    all.push_back({heads[0], {kF16}, {.window = window}});
  }
  all.push_back({heads[0], {kBF16}, {}});
  all.push_back({heads[3], {kF32}, {.window = 40, .soft_cap = 3.0f}});
  all.push_back({heads[0], {kF16}, {.sinks = true}});
  all.push_back({heads[0], {kF16}, {.slopes = true}});
  all.push_back({heads[3], {kF32}, {.window = 40, .slopes = true}});
  all.push_back({heads[3], {kF32}, {.window = 40, .soft_cap = 3.0f, .sinks = true}});
  all.push_back({heads[3], {kInt8}, {.window = 40, .soft_cap = 3.0f, .sinks = true}});
  for (const int32_t extent : {1, 17, 90, 400}) {
    all.push_back({heads[0], {kF16}, {.relative = extent}});
  }
  all.push_back({heads[3], {kInt8}, {.window = 40, .relative = 40}});
  all.push_back({{2, 1, 24}, {kF32}, {.relative = 33}});
  for (const int32_t chunk : {1, 12, 64}) {
    all.push_back({heads[0], {kF16}, {.window = chunk, .chunk = chunk}});
  }
  all.push_back({heads[3], {kInt8}, {.window = 40, .chunk = 40}});
  all.push_back({heads[3], {kInt4}, {.window = 40, .soft_cap = 3.0f, .sinks = true}});
  for (const KvFormat format : {kF32, kInt8, kInt4}) {
    all.push_back({{2, 1, 24}, {format}, {}});  // no multiple of 16: the reference's alone
  }
  // Keys and values of unlike formats and widths.
  all.push_back({heads[0], {kInt8, kF16}, {}});
  all.push_back({heads[0], {kF16, kInt8}, {}});
  all.push_back({heads[0], {kInt8, kInt4}, {}});
  all.push_back({{8, 8, 192, 128}, {kF16}, {}});
  all.push_back({{6, 2, 80, 128}, {kF32}, {.window = 40}});
  all.push_back({{9, 3, 192, 128}, {kInt8}, {}});
  return all;
}

}  // namespace headrace::attention_fixture
