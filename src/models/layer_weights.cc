#include "models/layer_weights.h"

#include <vector>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"

namespace headrace {
namespace {

// False: nothing was done, the matrix is no stack.
bool multiply_one_by_one(OpContext& context, const LinearLayer& layer, const ConstTensorView& x,
                         const TensorView& y) {
  const std::vector<LinearWeight> stacked = layer.weight.parts();
  int64_t first = 0;
  for (const LinearWeight& weight : stacked) {
    const float* bias = layer.bias.data() == nullptr ? nullptr : layer.bias.data() + first;
    linear(context,
           {.x = x, .weight = &weight, .bias = bias, .y = column_range(y, first, weight.n())});
    first += weight.n();
  }
  return !stacked.empty();
}

}  // namespace

Result<Buffer> upload_bytes(Device& device, std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(size));
  const auto stream = device.create_stream();
  stream->copy_in(buffer.data(), bytes.data(), size);
  HR_RETURN_IF_ERROR(stream->synchronize());
  return buffer;
}

Result<DeviceVector> DeviceVector::upload(Device& device, std::span<const float> values) {
  DeviceVector vector;
  HR_ASSIGN_OR_RETURN(vector.buffer_, upload_bytes(device, std::as_bytes(values)));
  return vector;
}

void normalise(OpContext& context, const NormWeights& norm, const TensorView& x,
               const ConstTensorView& residual, float residual_scale, const TensorView& out) {
  if (is_layer_norm(norm.kind)) {
    layer_norm(context, {.x = x,
                         .residual = residual,
                         .weight = norm.weight.data(),
                         .bias = norm.bias.data(),
                         .eps = norm.eps,
                         .out = out,
                         .residual_scale = residual_scale});
  } else {
    rms_norm(context, {.x = x,
                       .residual = residual,
                       .weight = norm.weight.data(),
                       .eps = norm.eps,
                       .out = out,
                       .residual_scale = residual_scale});
  }
}

void multiply(OpContext& context, const LinearLayer& layer, const ConstTensorView& x,
              const TensorView& y) {
  if (runs_unfused(context) && multiply_one_by_one(context, layer, x, y)) return;
  linear(context, {.x = x, .weight = &layer.weight, .bias = layer.bias.data(), .y = y});
}

}  // namespace headrace
