#include <array>

#include "ops/rope_kv.h"

namespace headrace {
namespace {

// cos, sin: [pairs]. Rotates the first 2 * pairs components of one head.
void rotate(RopeStyle style, const float* cos, const float* sin, int64_t pairs, float* head) {
  const int64_t step = style == RopeStyle::kHalf ? 1 : 2;
  const int64_t partner = style == RopeStyle::kHalf ? pairs : 1;
  for (int64_t i = 0; i < pairs; ++i) {
    float& a = head[i * step];
    float& b = head[i * step + partner];
    const float rotated = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = rotated;
  }
}

void reference(OpContext&, const RopeKvArgs& args) {
  const KvLayerView& kv = args.kv;
  const int32_t dim = kv.head_dim;
  for (int64_t t = 0; t < args.qkv.rows(); ++t) {
    float* q = f32_row(args.qkv, t);                  // [Hq, d]
    float* k = q + int64_t{args.query_heads} * dim;   // [Hkv, d]
    const float* v = k + int64_t{kv.kv_heads} * dim;  // [Hkv, d]
    const float* cos = f32_row(args.cos, t);          // [rope_dim / 2]
    const float* sin = f32_row(args.sin, t);
    const int64_t slot = args.slots[static_cast<size_t>(t)];
    for (int32_t head = 0; head < args.query_heads + kv.kv_heads; ++head) {
      rotate(args.style, cos, sin, args.cos.columns(), q + int64_t{head} * dim);
    }
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      for (int32_t d = 0; d < dim; ++d) {
        store_kv(kv.dtype, k[head * dim + d], key_at(kv, slot, head, d));
        store_kv(kv.dtype, v[head * dim + d], value_at(kv, slot, head, d));
      }
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const RopeKvArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kKernels = {
    Kernel<RopeKvArgs>{"rope_kv/cpu/reference", any_cpu, reference},
};

}  // namespace

std::span<const Kernel<RopeKvArgs>> rope_kv_cpu_kernels() { return kKernels; }

}  // namespace headrace
