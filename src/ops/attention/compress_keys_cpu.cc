#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/compress_keys.h"
#include "ops/attention/kv_numbers.h"

namespace headrace {
namespace {

void keep_row(const KeepSourcesArgs& args, int64_t t) {
  const int64_t slot = args.slots[static_cast<size_t>(t)];
  store_key(args.cache, slot, 0, f32_row(args.keys, t));
  if (args.cache.source_dim == 0) return;
  const int32_t tokens = args.cache.block_tokens;
  std::copy_n(f32_row(args.sources, t), args.cache.source_dim,
              sources_of(args.cache, slot / tokens, slot % tokens));
}

// One key of a run of tokens.
class RunKey {
 public:
  RunKey(const CompressKeysArgs& args, int64_t index)
      : args_(args),
        run_(args.runs[static_cast<size_t>(index)]),
        index_(index),
        dim_(args.of_index ? args.keys.index_dim : args.keys.k_dim),
        rate_(args.keys.rate) {}

  void make() {
    const int32_t first = run_.last - rate_ + 1;
    if (args_.overlaps && first > 0) add_sources(first - rate_, 0);
    add_sources(first, args_.overlaps ? 1 : 0);
    std::vector<float> key(static_cast<size_t>(dim_));
    for (int32_t d = 0; d < dim_; ++d) key[static_cast<size_t>(d)] = weighted_sum(d);
    normalise(key);
    rotate(key);
    const KvLayerView& keys = args_.keys;
    const int32_t block = run_.key_table[run_.last / keys.block_tokens];
    store_numbers(args_.of_index ? index_head(keys, block) : k_head(keys, block, 0),
                  run_.last % keys.block_tokens / rate_, key.data());
  }

 private:
  // Of component 0 of a token: its number, gate and bias; those of the others lie behind them.
  struct Source {
    const float *number, *gate, *bias;
  };

  void add_sources(int32_t first, int32_t series) {
    const KvLayerView& from = args_.sources;
    const int64_t width = int64_t{dim_} * (args_.overlaps ? 2 : 1);
    for (int32_t j = 0; j < rate_; ++j) {
      const int32_t place = first + j;
      const float* const token = sources_of(from, run_.source_table[place / from.block_tokens],
                                            place % from.block_tokens) +
                                 args_.first + series * dim_;
      sources_.push_back({token, token + width, args_.bias + j * width + series * dim_});
    }
  }

  float weighted_sum(int32_t d) const {
    double largest = -std::numeric_limits<double>::infinity(), weights = 0, sum = 0;
    for (const Source& source : sources_) {
      largest = std::max(largest, double{source.gate[d] + source.bias[d]});
    }
    for (const Source& source : sources_) {
      const double weight = std::exp(double{source.gate[d] + source.bias[d]} - largest);
      weights += weight;
      sum += weight * source.number[d];
    }
    return static_cast<float>(sum / weights);
  }

  void normalise(std::vector<float>& key) const {
    double squares = 0;
    for (const float number : key) squares += double{number} * number;
    const double factor = 1 / std::sqrt(squares / dim_ + args_.norm_eps);
    for (size_t d = 0; d < key.size(); ++d) {
      key[d] = static_cast<float>(key[d] * factor * args_.norm[d]);
    }
  }

  void rotate(std::vector<float>& key) const {
    const int64_t pairs = args_.cos.columns();
    float* const tail = key.data() + dim_ - 2 * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const float a = tail[2 * i], b = tail[2 * i + 1];
      const float cos = f32_row(args_.cos, index_)[i], sin = f32_row(args_.sin, index_)[i];
      tail[2 * i] = a * cos - b * sin;
      tail[2 * i + 1] = b * cos + a * sin;
    }
  }

  const CompressKeysArgs& args_;
  const CompleteRun& run_;
  const int64_t index_;
  const int32_t dim_, rate_;
  std::vector<Source> sources_;
};

// A row takes some microseconds: fewer than so many are not worth a fork-join.
constexpr int64_t kInlineRows = 4;

void keep_rows(OpContext& context, const KeepSourcesArgs& args) {
  context.device.pool().parallel_rows(args.keys.rows(), kInlineRows,
                                      [&](int64_t first, int64_t last) {
                                        for (int64_t t = first; t < last; ++t) keep_row(args, t);
                                      });
}

// A run of some tokens takes some 50 us.
void make_keys(OpContext& context, const CompressKeysArgs& args) {
  context.device.pool().parallel_for(std::ssize(args.runs), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) RunKey(args, i).make();
  });
}

bool keeps_on_cpu(const DeviceTraits& traits, const KeepSourcesArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool compresses_on_cpu(const DeviceTraits& traits, const CompressKeysArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kKeepSourcesKernels = {
    Kernel<KeepSourcesArgs>{"keep_sources/cpu/reference", keeps_on_cpu, keep_rows}};
constexpr std::array kCompressKeysKernels = {
    Kernel<CompressKeysArgs>{"compress_keys/cpu/reference", compresses_on_cpu, make_keys}};

}  // namespace

KernelTable<KeepSourcesArgs> keep_sources_cpu_kernels() { return kKeepSourcesKernels; }
KernelTable<CompressKeysArgs> compress_keys_cpu_kernels() { return kCompressKeysKernels; }

}  // namespace headrace
