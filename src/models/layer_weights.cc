#include "models/layer_weights.h"

#include <algorithm>
#include <vector>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/sigmoid_gate.h"
#include "tensor/arena_places.h"

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

// Of f32, the widest that activations are.
int64_t NormGate::workspace_bytes(int64_t rows) const {
  if (rank == 0) return 0;
  ArenaPlaces places;
  places.take_tensor(DType::kF32, Shape{rows, rank});
  places.take_tensor(DType::kF32, Shape{rows, up.weight.n()});
  return places.bytes_for(2) + std::max(linear_workspace_bytes(rows, down.weight),
                                        linear_workspace_bytes(rows, up.weight));
}

void gate_rows(OpContext& context, const NormGate& gate, const TensorView& y) {
  Workspace::Mark mark(context.workspace);
  const TensorView low = context.workspace.take_tensor(y.dtype, Shape{y.rows(), gate.rank});
  const TensorView gates = context.workspace.take_tensor(y.dtype, Shape{y.rows(), y.columns()});
  multiply(context, gate.down, y, low);
  activation(context, {.x = low, .activation = Activation::kSilu, .out = low});
  multiply(context, gate.up, low, gates);
  sigmoid_gate(context, {.x = y, .gate = gates});
}

void multiply(OpContext& context, const LinearLayer& layer, const ConstTensorView& x,
              const TensorView& y) {
  if (runs_unfused(context) && multiply_one_by_one(context, layer, x, y)) return;
  linear(context, {.x = x, .weight = &layer.weight, .bias = layer.bias.data(), .y = y});
}

}  // namespace headrace
