#include <array>
#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/latent_kv.h"

namespace headrace {
namespace {

// `to` may be `from`. cos, sin: [pairs]
void rotate(const float* from, const float* cos, const float* sin, int64_t pairs, float* to) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = from[i], b = from[i + pairs];
    to[i] = a * cos[i] - b * sin[i];
    to[i + pairs] = b * cos[i] + a * sin[i];
  }
}

void normalise(const float* x, const float* weight, float eps, int32_t dim, float* out) {
  double sum = 0.0;
  for (int32_t d = 0; d < dim; ++d) sum += static_cast<double>(x[d]) * x[d];
  const double rms = std::sqrt(sum / dim + eps);
  for (int32_t d = 0; d < dim; ++d) out[d] = static_cast<float>(x[d] / rms * weight[d]);
}

void run_row(const LatentKvArgs& args, int64_t t, float* key) {
  const int32_t latent = args.cache.v_dim, k_dim = args.cache.k_dim;
  const int64_t pairs = args.cos.columns();
  const int64_t query_dim = args.q.columns() / args.heads;
  const float* const kv = f32_row(args.kv, t);
  const float* const cos = f32_row(args.cos, t);
  const float* const sin = f32_row(args.sin, t);
  normalise(kv, args.norm, args.norm_eps, latent, key);
  rotate(kv + latent, cos, sin, pairs, key + latent);
  store_key(args.cache, args.slots[static_cast<size_t>(t)], 0, key);
  for (int64_t head = 0; head < args.heads; ++head) {
    const float* const q = f32_row(args.q, t) + (head + 1) * query_dim - 2 * pairs;
    rotate(q, cos, sin, pairs, f32_row(args.queries, t) + head * k_dim + latent);
  }
}

// A row takes about 5 us: fewer than so many are not worth a fork-join.
constexpr int64_t kInlineRows = 4;

void reference(OpContext& context, const LatentKvArgs& args) {
  context.device.pool().parallel_rows(
      args.kv.rows(), kInlineRows, [&](int64_t first, int64_t last) {
        std::vector<float> key(static_cast<size_t>(args.cache.k_dim));
        for (int64_t t = first; t < last; ++t) run_row(args, t, key.data());
      });
}

bool any_cpu(const DeviceTraits& traits, const LatentKvArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kLatentKvKernels = {
    Kernel<LatentKvArgs>{"latent_kv/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<LatentKvArgs> latent_kv_cpu_kernels() { return kLatentKvKernels; }

}  // namespace headrace
