#include "models/parts/carried_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/embedding.h"
#include "ops/rows/hyper_connection.h"
#include "ops/rows/match_size.h"
#include "ops/rows/norm_add.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/scale_rows.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

// Below which no row is divided by its size.
constexpr float kMeanSquareMin = 1e-5f;
constexpr int64_t kKeptRows = 64;  // that move at a time

void copy_rows(OpContext& context, const ConstTensorView& from, const TensorView& to) {
  row_gather(context, {.x = from, .rows = {}, .out = to});
}

}  // namespace

Status CarriedRows::load(LayerTensors& tensors) {
  if (spec_.input_width > 0) {
    const int64_t all = spec_.input_columns();
    HR_RETURN_IF_ERROR(load_table(tensors));
    MatrixStack projection{.columns = hidden_};
    projection.rows = {{"per_layer_model_proj", all}};
    HR_ASSIGN_OR_RETURN(projection_, tensors.matrix(projection));
    HR_ASSIGN_OR_RETURN(input_norm_,
                        tensors.vector("per_layer_proj_norm.weight", spec_.input_width));
  }
  if (spec_.hyper) return load_hyper(tensors);
  HR_RETURN_IF_ERROR(load_stream_matrices(tensors, "altup_proj", spread_));
  return load_stream_matrices(tensors, "altup_unembd_proj", joined_);
}

Status CarriedRows::load_hyper(LayerTensors& tensors) {
  if (spec_.gate_rank > 0) {
    joined_streams_.emplace(spec_.streams, spec_.gate_rank, spec_.norm_eps, hidden_, false);
    return joined_streams_->load(tensors, "output_hc");
  }
  MatrixStack stack{.columns = spec_.streams * hidden_, .exact = true};
  stack.rows = {{"output_hc_fn", spec_.streams}};
  HR_ASSIGN_OR_RETURN(hyper_, tensors.matrix(stack));
  HR_ASSIGN_OR_RETURN(hyper_bias_, tensors.vector("output_hc_base.weight", spec_.streams));
  HR_ASSIGN_OR_RETURN(hyper_scale_, tensors.vector("output_hc_scale.weight", 1));
  return ok_status();
}

Status CarriedRows::load_table(LayerTensors& tensors) {
  const std::string name = "per_layer_token_embd";
  const int64_t rows = spec_.input_vocab, columns = spec_.input_columns();
  if (!tensors.on_gpu()) {
    HR_ASSIGN_OR_RETURN(table_, tensors.table(name + ".weight", Shape{rows, columns}));
    return ok_status();
  }
  MatrixStack stack{.columns = columns, .dense = true};
  stack.rows = {{name, rows}};
  HR_ASSIGN_OR_RETURN(table_matrix_, tensors.matrix(stack));
  table_ = table_matrix_.weight.matrix();
  return ok_status();
}

Status CarriedRows::load_stream_matrices(LayerTensors& tensors, const char* name,
                                         std::vector<LinearLayer>& matrices) const {
  for (int32_t i = 0; i + 1 < spec_.streams; ++i) {
    MatrixStack::Rows rows{spec_.streams_stacked ? name : fmt::format("{}.{}", name, i), hidden_};
    if (spec_.streams_stacked) {
      rows.experts = spec_.streams - 1;
      rows.expert = i;
    }
    MatrixStack stack{.columns = hidden_};
    stack.rows = {std::move(rows)};
    HR_ASSIGN_OR_RETURN(LinearLayer matrix, tensors.matrix(stack));
    matrices.push_back(std::move(matrix));
  }
  return ok_status();
}

std::vector<LinearWeight*> CarriedRows::matrices() {
  std::vector<LinearWeight*> all;
  if (spec_.input_width > 0) all.push_back(&projection_.weight);
  if (joined_streams_) {
    for (LinearWeight* const matrix : joined_streams_->matrices()) all.push_back(matrix);
  } else if (spec_.hyper) {
    all.push_back(&hyper_.weight);
  }
  for (std::vector<LinearLayer>* const matrices : {&spread_, &joined_}) {
    for (LinearLayer& matrix : *matrices) all.push_back(&matrix.weight);
  }
  return all;
}

int64_t CarriedRows::workspace_bytes(int64_t rows) const {
  if (spec_.is_empty()) return 0;
  int64_t op_bytes = 0;
  ArenaPlaces places;
  if (spec_.input_width > 0) {
    op_bytes = linear_workspace_bytes(rows, projection_.weight);
    places.take_tensor(DType::kF32, Shape{rows, spec_.input_columns()});
  }
  places.take_tensor(DType::kF32, Shape{std::min(rows, kKeptRows), columns() + spec_.behind});
  if (joined_streams_) {
    op_bytes = std::max(op_bytes, joined_streams_->workspace_bytes(rows));
  } else if (spec_.hyper) {
    op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, hyper_.weight));
  }
  for (const std::vector<LinearLayer>* const matrices : {&spread_, &joined_}) {
    for (const LinearLayer& matrix : *matrices) {
      op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, matrix.weight));
    }
  }
  places.take_tensor(DType::kF32, Shape{rows, hidden_});
  return places.bytes_for(3) + op_bytes;
}

TensorView CarriedRows::stream(const TensorView& carried, int32_t index) const {
  return column_range(carried, spec_.stream_column(index, hidden_), hidden_);
}

void CarriedRows::begin(OpContext& context, std::span<const TokenId> tokens, const TensorView& x,
                        const TensorView& carried) const {
  if (spec_.input_width > 0) make_inputs(context, tokens, x, carried);
  for (size_t t = 0; spec_.tokens && t < tokens.size(); ++t) {
    float* const row = f32_row(carried, static_cast<int64_t>(t));
    row[spec_.token_column(hidden_)] = std::bit_cast<float>(tokens[t]);
  }
  if (spec_.streams == 0) return;
  if (spec_.hyper) {
    for (int32_t s = 0; s < spec_.streams; ++s) copy_rows(context, x, stream(carried, s));
    return;
  }
  for (int32_t s = 0; s + 1 < spec_.streams; ++s) {
    multiply(context, spread_[static_cast<size_t>(s)], x, stream(carried, s + 1));
  }
  for (int32_t s = 1; s < spec_.streams; ++s) {
    const TensorView made = stream(carried, s);
    match_size(context, {.x = made, .like = x, .least = kMeanSquareMin, .out = made});
  }
  copy_rows(context, x, stream(carried, 0));
  copy_rows(context, stream(carried, spec_.active_stream), x);
}

void CarriedRows::make_inputs(OpContext& context, std::span<const TokenId> tokens,
                              const TensorView& x, const TensorView& carried) const {
  Workspace::Mark mark(context.workspace);
  const int64_t rows = x.rows(), all = spec_.input_columns(), width = spec_.input_width;
  const TensorView inputs = column_range(carried, 0, all);
  embedding(context, {.tokens = tokens,
                      .table = table_,
                      .out = inputs,
                      .scale = std::sqrt(static_cast<float>(width)),
                      .first_for_others = true});
  const TensorView projected = context.workspace.take_tensor(x.dtype, Shape{rows, all});
  multiply(context, projection_, x, projected);
  norm_add(context, {.x = inputs,
                     .y = projected,
                     .weight = input_norm_.data(),
                     .group = width,
                     .eps = spec_.norm_eps,
                     .scale = 1.0f / std::sqrt(static_cast<float>(hidden_)),
                     .factor = std::sqrt(0.5f)});
}

// Each moves past those that were read, so that no row is written before it is.
void CarriedRows::keep(OpContext& context, std::span<const int32_t> rows,
                       const TensorView& carried) const {
  const int64_t count = std::ssize(rows);
  Workspace::Mark mark(context.workspace);
  const TensorView memory = context.workspace.take_tensor(
      carried.dtype, Shape{std::min(count, kKeptRows), carried.columns()});
  for (int64_t first = 0; first < count; first += kKeptRows) {
    const TensorView moved = memory.row_range(0, std::min(count - first, kKeptRows));
    row_gather(context,
               {.x = carried,
                .rows = rows.subspan(static_cast<size_t>(first), static_cast<size_t>(moved.rows())),
                .out = moved});
    context.stream.copy(carried.row(first), moved.data, moved.rows() * moved.row_stride);
  }
}

void CarriedRows::join_by_gates(OpContext& context, const TensorView& x,
                                const TensorView& carried) const {
  Workspace::Mark mark(context.workspace);
  const TensorView streams =
      column_range(carried, spec_.stream_column(0, hidden_), spec_.streams * hidden_);
  if (joined_streams_) return joined_streams_->read(context, streams, x, {});
  const TensorView logits =
      context.workspace.take_tensor(DType::kF32, Shape{x.rows(), spec_.streams});
  multiply(context, hyper_, streams, logits);
  hyper_mix(context, {.streams = streams,
                      .logits = logits,
                      .scales = hyper_scale_.data(),
                      .biases = hyper_bias_.data(),
                      .norm_eps = spec_.norm_eps,
                      .eps = spec_.hyper_eps,
                      .x = x,
                      .gates = {}});
}

void CarriedRows::end(OpContext& context, const TensorView& x, const TensorView& carried) const {
  if (spec_.streams == 0) return;
  if (spec_.hyper) return join_by_gates(context, x, carried);
  Workspace::Mark mark(context.workspace);
  const TensorView made = context.workspace.take_tensor(x.dtype, x.shape);
  const TensorView first = stream(carried, 0);
  copy_rows(context, first, x);
  for (int32_t s = 1; s < spec_.streams; ++s) {
    multiply(context, joined_[static_cast<size_t>(s - 1)], stream(carried, s), made);
    match_size(context,
               {.x = made, .like = first, .least = kMeanSquareMin, .out = x, .adds = true});
  }
  scale_rows(context, {.x = x, .divisor = static_cast<float>(spec_.streams)});
}

}  // namespace headrace
