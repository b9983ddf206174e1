#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/attention/index_keys.h"
#include "ops/attention/kv_numbers.h"

namespace headrace {
namespace {

void rotate_front(const float* cos, const float* sin, int64_t pairs, float* head) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = head[i], b = head[i + pairs];
    head[i] = a * cos[i] - b * sin[i];
    head[i + pairs] = b * cos[i] + a * sin[i];
  }
}

void layer_norm_of(const IndexKeysArgs& args, const float* x, float* out) {
  const int32_t dim = args.cache.index_dim;
  if (args.norm == nullptr) {
    std::copy_n(x, dim, out);
    return;
  }
  double sum = 0.0, squares = 0.0;
  for (int32_t d = 0; d < dim; ++d) sum += x[d];
  const double mean = sum / dim;
  for (int32_t d = 0; d < dim; ++d) squares += (x[d] - mean) * (x[d] - mean);
  const double deviation = std::sqrt(squares / dim + args.norm_eps);
  for (int32_t d = 0; d < dim; ++d) {
    out[d] = static_cast<float>((x[d] - mean) / deviation * args.norm[d] + args.norm_bias[d]);
  }
}

void keep_row(const IndexKeysArgs& args, int64_t t, float* key) {
  const KvLayerView& cache = args.cache;
  const float* const cos = f32_row(args.cos, t);
  const float* const sin = f32_row(args.sin, t);
  const int64_t pairs = args.cos.columns(), slot = args.slots[static_cast<size_t>(t)];
  layer_norm_of(args, f32_row(args.keys, t), key);
  if (args.rotates_keys) rotate_front(cos, sin, pairs, key);
  store_index_key(cache, slot, key);
  float* const queries = f32_row(args.queries, t);
  for (int64_t first = 0; first < args.queries.columns(); first += cache.index_dim) {
    rotate_front(cos, sin, pairs, queries + first);
  }
}

// A row takes some microseconds: fewer than so many are not worth a fork-join.
constexpr int64_t kInlineKeys = 4;

void keep_rows(OpContext& context, const IndexKeysArgs& args) {
  context.device.pool().parallel_rows(
      args.keys.rows(), kInlineKeys, [&](int64_t first, int64_t last) {
        std::vector<float> key(static_cast<size_t>(args.cache.index_dim));
        for (int64_t t = first; t < last; ++t) keep_row(args, t, key.data());
      });
}

bool any_cpu(const DeviceTraits& traits, const IndexKeysArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kIndexKeysKernels = {
    Kernel<IndexKeysArgs>{"index_keys/cpu/reference", any_cpu, keep_rows},
};

}  // namespace

KernelTable<IndexKeysArgs> index_keys_cpu_kernels() { return kIndexKeysKernels; }

}  // namespace headrace
