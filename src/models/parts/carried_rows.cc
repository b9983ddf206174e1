#include "models/parts/carried_rows.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/embedding.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

float root_mean_square(const float* row, int64_t columns, float least) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += double{row[c]} * row[c];
  return static_cast<float>(std::sqrt(std::max(sum / static_cast<double>(columns), double{least})));
}

// Below which no row is divided by its size.
constexpr float kMeanSquareMin = 1e-5f;

}  // namespace

Status CarriedRows::load(LayerTensors& tensors) {
  if (spec_.input_width > 0) {
    const int64_t all = spec_.input_columns();
    HR_ASSIGN_OR_RETURN(
        table_, tensors.table("per_layer_token_embd.weight", Shape{spec_.input_vocab, all}));
    MatrixStack projection{.columns = hidden_};
    projection.rows = {{"per_layer_model_proj", all}};
    HR_ASSIGN_OR_RETURN(projection_, tensors.matrix(projection));
    HR_ASSIGN_OR_RETURN(input_norm_,
                        tensors.values("per_layer_proj_norm.weight", Shape{spec_.input_width}));
  }
  HR_RETURN_IF_ERROR(load_stream_matrices(tensors, "altup_proj", spread_));
  return load_stream_matrices(tensors, "altup_unembd_proj", joined_);
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
    places.take<TokenId>(static_cast<size_t>(rows));
  }
  for (const std::vector<LinearLayer>* const matrices : {&spread_, &joined_}) {
    for (const LinearLayer& matrix : *matrices) {
      op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, matrix.weight));
    }
  }
  places.take_tensor(DType::kF32, Shape{rows, hidden_});
  return places.bytes_for(3) + op_bytes + ArenaPlaces::kAlignment;
}

TensorView CarriedRows::stream(const TensorView& carried, int32_t index) const {
  return column_range(carried, spec_.stream_column(index, hidden_), hidden_);
}

void CarriedRows::begin(OpContext& context, std::span<const TokenId> tokens, const TensorView& x,
                        const TensorView& carried) const {
  if (spec_.input_width > 0) make_inputs(context, tokens, x, carried);
  if (spec_.streams == 0) return;
  for (int32_t s = 0; s + 1 < spec_.streams; ++s) {
    multiply(context, spread_[static_cast<size_t>(s)], x, stream(carried, s + 1));
  }
  for_frame_rows(context, x.rows(), [&](int64_t t) {
    float* const own = f32_row(x, t);
    const float size = root_mean_square(own, hidden_, 0.0f);
    std::copy_n(own, hidden_, f32_row(stream(carried, 0), t));
    for (int32_t s = 1; s < spec_.streams; ++s) {
      float* const row = f32_row(stream(carried, s), t);
      const float made = root_mean_square(row, hidden_, kMeanSquareMin);
      for (int64_t c = 0; c < hidden_; ++c) row[c] = row[c] * size / made;
    }
    std::copy_n(f32_row(stream(carried, spec_.active_stream), t), hidden_, own);
  });
}

void CarriedRows::make_inputs(OpContext& context, std::span<const TokenId> tokens,
                              const TensorView& x, const TensorView& carried) const {
  Workspace::Mark mark(context.workspace);
  const int64_t rows = x.rows(), all = spec_.input_columns(), width = spec_.input_width;
  const TensorView inputs = column_range(carried, 0, all);
  TokenId* const known = context.workspace.take_array<TokenId>(rows);
  std::ranges::transform(
      tokens, known, [&](TokenId token) { return token < spec_.input_vocab ? token : TokenId{0}; });
  embedding(context, {.tokens = {known, static_cast<size_t>(rows)},
                      .table = table_,
                      .out = inputs,
                      .scale = std::sqrt(static_cast<float>(width))});
  const TensorView projected = context.workspace.take_tensor(DType::kF32, Shape{rows, all});
  multiply(context, projection_, x, projected);
  const float scale = 1.0f / std::sqrt(static_cast<float>(hidden_));
  const float half = std::sqrt(0.5f);
  for_frame_rows(context, rows, [&](int64_t t) {
    for (int32_t layer = 0; layer < spec_.layers; ++layer) {
      float* const from = f32_row(projected, t) + spec_.input_column(layer);
      float* const to = f32_row(inputs, t) + spec_.input_column(layer);
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        from[i] *= scale;
        sum += double{from[i]} * from[i];
      }
      const auto size = static_cast<float>(
          1.0 / std::sqrt(sum / static_cast<double>(width) + double{spec_.norm_eps}));
      for (int64_t i = 0; i < width; ++i) {
        to[i] = (from[i] * size * input_norm_[static_cast<size_t>(i)] + to[i]) * half;
      }
    }
  });
}

void CarriedRows::end(OpContext& context, const TensorView& x, const TensorView& carried) const {
  if (spec_.streams == 0) return;
  Workspace::Mark mark(context.workspace);
  const TensorView made = context.workspace.take_tensor(DType::kF32, x.shape);
  const TensorView first = stream(carried, 0);
  for_frame_rows(context, x.rows(),
                 [&](int64_t t) { std::copy_n(f32_row(first, t), hidden_, f32_row(x, t)); });
  for (int32_t s = 1; s < spec_.streams; ++s) {
    multiply(context, joined_[static_cast<size_t>(s - 1)], stream(carried, s), made);
    for_frame_rows(context, x.rows(), [&](int64_t t) {
      const float* const row = f32_row(made, t);
      const float size = root_mean_square(f32_row(first, t), hidden_, 0.0f);
      const float of_row = root_mean_square(row, hidden_, kMeanSquareMin);
      float* const sum = f32_row(x, t);
      for (int64_t c = 0; c < hidden_; ++c) sum[c] += row[c] * size / of_row;
    });
  }
  const auto count = static_cast<float>(spec_.streams);
  for_frame_rows(context, x.rows(), [&](int64_t t) {
    float* const row = f32_row(x, t);
    for (int64_t c = 0; c < hidden_; ++c) row[c] /= count;
  });
}

}  // namespace headrace
