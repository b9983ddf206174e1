#include "models/device_limits.h"

#include <fmt/format.h>

#include "ops/attention/plan.h"
#include "ops/attention/rope_kv.h"
#include "ops/sampling/device_sample.h"

namespace headrace {
namespace {

KvLayerView cache_of(const DecoderLayerSpec& layer, DType dtype) {
  return {.dtype = dtype,
          .keys = KeyLayout::kRows,
          .kv_heads = layer.kv_heads,
          .head_dim = layer.head_dim};
}

// Rows of no data: kernels look at sizes, types and alignment.
TensorView rows_of(DType dtype, int64_t columns) { return {nullptr, dtype, Shape{1, columns}}; }

bool attention_fits(const DeviceTraits& device, const DecoderLayerSpec& layer, DType dtype) {
  const AttentionPlan plan;
  const TensorView rows = rows_of(dtype, int64_t{layer.heads} * layer.head_dim);
  AttentionArgs args;
  args.q = rows;
  args.kv = cache_of(layer, dtype);
  args.plan = &plan;
  args.out = rows;
  return attention_kernels().find(device, args) != nullptr;
}

bool rotation_fits(const DeviceTraits& device, const DecoderLayerSpec& layer, DType dtype) {
  const int64_t heads = int64_t{layer.heads} + 2 * int64_t{layer.kv_heads};
  const TensorView angles = rows_of(DType::kF32, layer.head_dim / 2);
  RopeKvArgs args;
  args.qkv = rows_of(dtype, heads * layer.head_dim);
  args.cos = angles;
  args.sin = angles;
  args.query_heads = layer.heads;
  args.kv = cache_of(layer, dtype);
  return rope_kv_kernels().find(device, args) != nullptr;
}

bool sampling_fits(const DeviceTraits& device, int64_t vocabulary) {
  DeviceSampleArgs args{};
  args.logits = rows_of(DType::kF32, vocabulary);
  return device_sample_kernels().find(device, args) != nullptr;
}

// Below `size`, which does not fit; 0: none does.
template <class Fits>
int64_t largest_that_fits(int64_t size, const Fits& fits) {
  int64_t low = 0;
  for (int64_t high = size; high - low > 1;) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

Status check_device_limits(const DecoderSpec& spec, const DeviceTraits& device, DType activations) {
  if (device.kind != DeviceKind::kCuda) return ok_status();
  for (const DecoderLayerSpec& layer : spec.layers) {
    const auto heads_fit = [&](int64_t head_dim) {
      DecoderLayerSpec of_size = layer;
      of_size.head_dim = static_cast<int32_t>(head_dim);
      return attention_fits(device, of_size, activations) &&
             rotation_fits(device, of_size, activations);
    };
    if (heads_fit(layer.head_dim)) continue;
    return unsupported(
        fmt::format("attention heads of {} are larger than kernels on a GPU take, which is {}: use "
                    "--device cpu",
                    layer.head_dim, largest_that_fits(layer.head_dim, heads_fit)));
  }
  const auto vocabulary_fits = [&](int64_t size) { return sampling_fits(device, size); };
  if (vocabulary_fits(spec.model.vocab_size)) return ok_status();
  return unsupported(fmt::format(
      "a vocabulary of {} tokens is larger than sampling on a GPU takes, which is {}: use --device "
      "cpu",
      spec.model.vocab_size, largest_that_fits(spec.model.vocab_size, vocabulary_fits)));
}

}  // namespace headrace
