#include <array>
#include <cmath>

#include "ops/attention/kv_numbers.h"
#include "ops/attention/rope_kv.h"
#include "ops/attention/rope_kv_row.h"
#include "ops/rows/rms_norm_rows.h"

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

// RMSNorm of one head, in place.
void normalise(const float* weight, float eps, int32_t dim, float* head) {
  double sum = 0.0;
  for (int32_t d = 0; d < dim; ++d) sum += static_cast<double>(head[d]) * head[d];
  const double rms = std::sqrt(sum / dim + eps);
  for (int32_t d = 0; d < dim; ++d) head[d] = static_cast<float>(head[d] / rms * weight[d]);
}

void reference(OpContext&, const RopeKvArgs& args) {
  const KvLayerView& kv = args.kv;
  const int32_t dim = kv.k_dim;
  for (int64_t t = 0; t < args.qkv.rows(); ++t) {
    float* q = f32_row(args.qkv, t);                  // [Hq, k_dim]
    float* k = q + int64_t{args.query_heads} * dim;   // [Hkv, k_dim]
    const float* v = k + int64_t{kv.kv_heads} * dim;  // [Hkv, v_dim]
    const float* cos = f32_row(args.cos, t);          // [rope_dim / 2]
    const float* sin = f32_row(args.sin, t);
    const int64_t slot = args.slots[static_cast<size_t>(t)];
    for (int32_t head = 0; head < args.query_heads + kv.kv_heads; ++head) {
      const float* norm = head < args.query_heads ? args.q_norm : args.k_norm;
      if (norm != nullptr) normalise(norm, args.norm_eps, dim, q + int64_t{head} * dim);
      rotate(args.style, cos, sin, args.cos.columns(), q + int64_t{head} * dim);
      if (mixes_keys(kv.k_format)) mix_head(q + int64_t{head} * dim, dim);
    }
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      store_key(kv, slot, head, k + int64_t{head} * dim);
      store_value(kv, slot, head, v + int64_t{head} * kv.v_dim);
    }
  }
}

RopeKvRow row_of(const RopeKvArgs& args, int64_t t) {
  const int64_t slot = args.slots[static_cast<size_t>(t)];
  return {.q = f32_row(args.qkv, t),
          .cos = f32_row(args.cos, t),
          .sin = f32_row(args.sin, t),
          .pairs = args.cos.columns(),
          .query_heads = args.query_heads,
          .kv_heads = args.kv.kv_heads,
          .k_dim = args.kv.k_dim,
          .v_dim = args.kv.v_dim,
          .keys = k_head(args.kv, slot / args.kv.block_tokens, 0).at,
          .values = v_head(args.kv, slot / args.kv.block_tokens, 0).at,
          .token = slot % args.kv.block_tokens,
          .k_format = args.kv.k_format,
          .v_format = args.kv.v_format};
}

// The heads of one token as rows of an RMSNorm, in place.
RmsNormRows head_rows(float* heads, const float* weight, int64_t count, const RopeKvArgs& args) {
  const int64_t dim = args.kv.k_dim;
  return {.x = heads,
          .residual = nullptr,
          .weight = weight,
          .out = heads,
          .x_stride = dim,
          .residual_stride = 0,
          .out_stride = dim,
          .rows = count,
          .columns = dim,
          .eps = args.norm_eps,
          .residual_scale = 1.0f};
}

// 32 rows of 15 heads take about 10 us: fewer are not worth a fork-join.
template <void (*kRow)(const RopeKvRow&), void (*kNormRows)(const RmsNormRows&)>
void run_rows(OpContext& context, const RopeKvArgs& args) {
  context.device.pool().parallel_rows(args.qkv.rows(), 32, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      if (args.k_norm != nullptr) {
        float* q = f32_row(args.qkv, t);                           // [Hq, d]
        float* k = q + int64_t{args.query_heads} * args.kv.k_dim;  // [Hkv, d]
        if (args.q_norm != nullptr) kNormRows(head_rows(q, args.q_norm, args.query_heads, args));
        kNormRows(head_rows(k, args.k_norm, args.kv.kv_heads, args));
      }
      kRow(row_of(args, t));
    }
  });
}

bool any_cpu(const DeviceTraits& traits, const RopeKvArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
// What rope_kv_row.h can say.
bool fits_row(const RopeKvArgs& args) {
  const KvLayerView& kv = args.kv;
  return args.style == RopeStyle::kHalf && kv.k_format != KvFormat::kBF16 &&
         kv.v_format != KvFormat::kBF16 && !lies_in_columns(kv.k_format) &&
         !lies_in_columns(kv.v_format) && kv.keys == KeyLayout::kTransposed &&
         kv.block_tokens == 16 && kv.k_dim % 16 == 0 && kv.v_dim % 16 == 0;
}
bool avx512(const DeviceTraits& traits, const RopeKvArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512 && fits_row(args);
}
bool avx2(const DeviceTraits& traits, const RopeKvArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2 && fits_row(args);
}

constexpr std::array kRopeKvKernels = {
    Kernel<RopeKvArgs>{"rope_kv/cpu/avx512", avx512,
                       run_rows<rope_kv_row_avx512, rms_norm_rows_avx512>},
    Kernel<RopeKvArgs>{"rope_kv/cpu/avx2", avx2, run_rows<rope_kv_row_avx2, rms_norm_rows_avx2>},
    Kernel<RopeKvArgs>{"rope_kv/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<RopeKvArgs> rope_kv_cpu_kernels() { return kRopeKvKernels; }

}  // namespace headrace
