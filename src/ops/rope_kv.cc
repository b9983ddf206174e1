#include "ops/rope_kv.h"

#include <cmath>

namespace headrace {

std::span<const Kernel<RopeKvArgs>> rope_kv_cpu_kernels();  // rope_kv_cpu.cc

namespace {

void check_args(const RopeKvArgs& args) {
  const int64_t tokens = args.qkv.rows();
  const int64_t heads = int64_t{args.query_heads} + 2 * int64_t{args.kv.kv_heads};
  CHECK(args.qkv.dtype == DType::kF32);
  CHECK((args.qkv.shape == Shape{tokens, heads * args.kv.head_dim}));
  CHECK(args.cos.dtype == DType::kF32 && args.sin.dtype == DType::kF32);
  CHECK(args.cos.shape == args.sin.shape && args.cos.rows() == tokens);
  CHECK(2 * args.cos.columns() <= args.kv.head_dim);
  CHECK(static_cast<int64_t>(args.slots.size()) == tokens);
  CHECK(args.kv.dtype == DType::kF32 || args.kv.dtype == DType::kF16 ||
        args.kv.dtype == DType::kBF16);
}

}  // namespace

KernelSet<RopeKvArgs> rope_kv_kernels() { return KernelSet<RopeKvArgs>(rope_kv_cpu_kernels()); }

void rope_kv(OpContext& context, const RopeKvArgs& args) {
  check_args(args);
  if (args.qkv.rows() == 0) return;
  rope_kv_kernels().select(context.device, args).run(context, args);
}

void rope_angles(std::span<const int32_t> positions, std::span<const double> inv_freq,
                 const TensorView& cos, const TensorView& sin) {
  const Shape shape{static_cast<int64_t>(positions.size()), static_cast<int64_t>(inv_freq.size())};
  CHECK(cos.shape == shape && sin.shape == shape);
  for (size_t t = 0; t < positions.size(); ++t) {
    float* cos_row = f32_row(cos, static_cast<int64_t>(t));
    float* sin_row = f32_row(sin, static_cast<int64_t>(t));
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      const double angle = positions[t] * inv_freq[i];
      cos_row[i] = static_cast<float>(std::cos(angle));
      sin_row[i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace headrace
