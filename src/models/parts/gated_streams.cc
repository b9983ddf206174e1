#include "models/parts/gated_streams.h"

#include <algorithm>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/scale_rows.h"
#include "ops/rows/sigmoid_gate.h"
#include "tensor/arena_places.h"

namespace headrace {

void normalise_parts(OpContext& context, const TensorView& x, const float* weight, float eps,
                     int64_t parts, const TensorView& out) {
  const int64_t width = x.columns() / parts;
  for (int64_t j = 0; j < parts; ++j) {
    rms_norm(context, {.x = column_range(x, j * width, width),
                       .residual = {},
                       .weight = weight + j * width,
                       .eps = eps,
                       .out = column_range(out, j * width, width)});
  }
}

Status GatedStreams::load(LayerTensors& tensors, const std::string& name) {
  const int64_t width = streams_ * hidden_;
  HR_ASSIGN_OR_RETURN(norm_, tensors.vector(name + "_norm.weight", width));
  MatrixStack down{.columns = width}, up{.columns = rank_};
  down.rows = {{name + "_down", rank_}};
  up.rows = {{name + "_up", width}};
  HR_ASSIGN_OR_RETURN(down_, tensors.matrix(down));
  HR_ASSIGN_OR_RETURN(up_, tensors.matrix(up));
  if (!injects_) return ok_status();
  MatrixStack inject{.columns = width, .exact = true};
  inject.rows = {{name + "_inject", streams_}};
  HR_ASSIGN_OR_RETURN(inject_, tensors.matrix(inject));
  return ok_status();
}

std::vector<LinearWeight*> GatedStreams::matrices() {
  if (!injects_) return {&down_.weight, &up_.weight};
  return {&down_.weight, &up_.weight, &inject_.weight};
}

// Of f32, the widest that activations are.
int64_t GatedStreams::workspace_bytes(int64_t rows) const {
  ArenaPlaces places;
  places.take_tensor(DType::kF32, Shape{rows, streams_ * hidden_});
  places.take_tensor(DType::kF32, Shape{rows, streams_ * hidden_});
  places.take_tensor(DType::kF32, Shape{rows, rank_});
  int64_t op_bytes = std::max(linear_workspace_bytes(rows, down_.weight),
                              linear_workspace_bytes(rows, up_.weight));
  if (injects_) op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, inject_.weight));
  return places.bytes_for(3) + op_bytes;
}

TensorView GatedStreams::stream(const TensorView& rows, int64_t index) const {
  return column_range(rows, index * hidden_, hidden_);
}

void GatedStreams::divide_by_count(OpContext& context, const TensorView& rows) const {
  scale_rows(context, {.x = rows, .divisor = static_cast<float>(streams_)});
}

void GatedStreams::read(OpContext& context, const TensorView& streams, const TensorView& x,
                        const TensorView& logits) const {
  Workspace::Mark mark(context.workspace);
  const Shape shape{x.rows(), streams_ * hidden_};
  const TensorView normed = context.workspace.take_tensor(x.dtype, shape);
  const TensorView gates = context.workspace.take_tensor(x.dtype, shape);
  const TensorView low = context.workspace.take_tensor(x.dtype, Shape{x.rows(), rank_});
  normalise_parts(context, streams, norm_.data(), norm_eps_, streams_, normed);
  multiply(context, down_, normed, low);
  divide_by_count(context, low);
  activation(context, {.x = low, .activation = Activation::kSilu, .out = low});
  multiply(context, up_, low, gates);
  if (injects_) {
    multiply(context, inject_, normed, logits);
    divide_by_count(context, logits);
  }
  sigmoid_gate(context, {.x = normed, .gate = gates});
  row_gather(context, {.x = stream(normed, 0), .rows = {}, .out = x});
  for (int64_t j = 1; j < streams_; ++j) {
    residual_add(context, {.x = x, .residual = stream(normed, j)});
  }
  divide_by_count(context, x);
}

void GatedStreams::add(OpContext& context, const TensorView& streams, const TensorView& made,
                       const TensorView& logits) const {
  Workspace::Mark mark(context.workspace);
  const TensorView gated = context.workspace.take_tensor(made.dtype, made.shape);
  for (int64_t j = 0; j < streams_; ++j) {
    row_gather(context, {.x = made, .rows = {}, .out = gated});
    sigmoid_gate(context, {.x = gated, .gate = column_range(logits, j, 1)});
    residual_add(context, {.x = stream(streams, j), .residual = gated, .scale = 2.0f});
  }
}

}  // namespace headrace
