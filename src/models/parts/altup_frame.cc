#include "models/parts/altup_frame.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "models/parts/token_input_frame.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

constexpr size_t kStreamsMax = 16;  // as configurations have at most

class AltUpFrame final : public LayerFrame {
 public:
  AltUpFrame(const AltUpSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), input_(spec.carried, spec.layer, hidden) {}

  Status load(LayerTensors& tensors) override {
    const int64_t streams = spec_.carried.streams;
    HR_ASSIGN_OR_RETURN(correct_,
                        tensors.values("altup_correct_coef.weight", Shape{streams, streams}));
    HR_ASSIGN_OR_RETURN(scale_, tensors.values("altup_correct_scale.weight", Shape{hidden_}));
    HR_ASSIGN_OR_RETURN(
        predict_, tensors.values("altup_predict_coef.weight", Shape{streams * streams, streams}));
    MatrixStack router{.columns = hidden_, .exact = true};
    router.rows = {{"altup_router", streams}};
    HR_ASSIGN_OR_RETURN(router_, tensors.matrix(router));
    router_norm_ = {.kind = NormKind::kRms, .eps = spec_.carried.norm_eps};
    router_norm_.scale = 1.0f / static_cast<float>(hidden_);
    HR_RETURN_IF_ERROR(tensors.read_norm("altup_router_norm", hidden_, router_norm_));
    MatrixStack left{.columns = hidden_}, right{.columns = spec_.laurel_rank};
    left.rows = {{"laurel_l", spec_.laurel_rank}};
    right.rows = {{"laurel_r", hidden_}};
    HR_ASSIGN_OR_RETURN(left_, tensors.matrix(left));
    HR_ASSIGN_OR_RETURN(right_, tensors.matrix(right));
    laurel_norm_ = {.kind = NormKind::kRms, .eps = spec_.carried.norm_eps};
    HR_RETURN_IF_ERROR(tensors.read_norm("laurel_post_norm", hidden_, laurel_norm_));
    return input_.load(tensors);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&router_.weight, &left_.weight, &right_.weight};
    for (LinearWeight* const matrix : input_.matrices()) all.push_back(matrix);
    return all;
  }

  int64_t workspace_bytes(int64_t rows) const override {
    ArenaPlaces places;
    places.take_tensor(DType::kF32, Shape{rows, hidden_});
    places.take_tensor(DType::kF32, Shape{rows, spec_.carried.streams});
    places.take_tensor(DType::kF32, Shape{rows, spec_.laurel_rank});
    input_.place(places, rows);
    return places.bytes_for(3 + TokenInputBranch::kPartsMax) +
           std::max({linear_workspace_bytes(rows, router_.weight),
                     linear_workspace_bytes(rows, left_.weight),
                     linear_workspace_bytes(rows, right_.weight), input_.op_workspace_bytes(rows)});
  }

  void before(const FrameRun& run) const override {
    OpContext& context = run.context;
    Workspace::Mark mark(context.workspace);
    const TensorView normed = context.workspace.take_tensor(DType::kF32, run.x.shape);
    const TensorView modes = modes_of(context, run.x, normed);
    const auto streams = static_cast<size_t>(spec_.carried.streams);
    for_frame_rows(context, run.x.rows(), [&](int64_t t) {
      std::array<float, kStreamsMax * kStreamsMax> weights;
      std::array<float, kStreamsMax> made;
      multiply_row(predict_, f32_row(modes, t), std::span(weights).first(streams * streams));
      float* const first = stream_row(run.carried, 0, t);
      for (int64_t c = 0; c < hidden_; ++c) {
        for (size_t j = 0; j < streams; ++j) {
          float sum = 0;
          for (size_t i = 0; i < streams; ++i) {
            sum += first[static_cast<int64_t>(i) * hidden_ + c] * weights[j * streams + i];
          }
          made[j] = sum + first[static_cast<int64_t>(j) * hidden_ + c];
        }
        for (size_t j = 0; j < streams; ++j) {
          first[static_cast<int64_t>(j) * hidden_ + c] = made[j];
        }
      }
      std::copy_n(active_row(run.carried, t), hidden_, f32_row(run.x, t));
    });
    keep_laurel(run, normed);
  }

  void between(const FrameRun& run) const override {
    const float root = std::sqrt(2.0f);
    for_frame_rows(run.context, run.x.rows(), [&](int64_t t) {
      float* const x = f32_row(run.x, t);
      const float* const laurel = laurel_row(run.carried, t);
      for (int64_t c = 0; c < hidden_; ++c) x[c] = (x[c] + laurel[c]) / root;
    });
  }

  void after(const FrameRun& run) const override {
    OpContext& context = run.context;
    Workspace::Mark mark(context.workspace);
    const TensorView scaled = context.workspace.take_tensor(DType::kF32, run.x.shape);
    const TensorView modes = modes_of(context, run.x, scaled);
    const auto streams = static_cast<size_t>(spec_.carried.streams);
    for_frame_rows(context, run.x.rows(), [&](int64_t t) {
      std::array<float, kStreamsMax> weights;
      multiply_row(correct_, f32_row(modes, t), std::span(weights).first(streams));
      float* const x = f32_row(run.x, t);
      const float* const predicted = active_row(run.carried, t);
      for (int64_t c = 0; c < hidden_; ++c) x[c] -= predicted[c];
      for (size_t j = 0; j < streams; ++j) {
        float* const row = stream_row(run.carried, static_cast<int32_t>(j), t);
        const float weight = weights[j] + 1.0f;
        for (int64_t c = 0; c < hidden_; ++c) row[c] += x[c] * weight;
      }
      const float* const active = active_row(run.carried, t);
      float* const to = f32_row(scaled, t);
      for (int64_t c = 0; c < hidden_; ++c) {
        to[c] = spec_.scales_corrected ? active[c] * scale_[static_cast<size_t>(c)] : active[c];
      }
    });
    const TensorView branch = input_.run(context, scaled, run.carried);
    for_frame_rows(context, run.x.rows(), [&](int64_t t) {
      const float* const added = f32_row(branch, t);
      for (int32_t s = 1; s < spec_.carried.streams; ++s) {
        float* const row = stream_row(run.carried, s, t);
        for (int64_t c = 0; c < hidden_; ++c) row[c] += added[c];
      }
      std::copy_n(active_row(run.carried, t), hidden_, f32_row(run.x, t));
    });
  }

 private:
  float* stream_row(const TensorView& carried, int32_t stream, int64_t t) const {
    return f32_row(carried, t) + spec_.carried.stream_column(stream, hidden_);
  }
  float* active_row(const TensorView& carried, int64_t t) const {
    return stream_row(carried, spec_.carried.active_stream, t);
  }
  float* laurel_row(const TensorView& carried, int64_t t) const {
    return f32_row(carried, t) + spec_.carried.kept_column(hidden_);
  }

  // m(rows), [R, N]; `normed` [R, D] is written over.
  TensorView modes_of(OpContext& context, const TensorView& rows, const TensorView& normed) const {
    const TensorView modes =
        context.workspace.take_tensor(DType::kF32, Shape{rows.rows(), spec_.carried.streams});
    normalise(context, router_norm_, rows, {}, 1.0f, normed);
    multiply(context, router_, normed, modes);
    for_frame_rows(context, rows.rows(), [&](int64_t t) {
      float* const row = f32_row(modes, t);
      for (int64_t i = 0; i < modes.columns(); ++i) row[i] = std::tanh(row[i]);
    });
    return modes;
  }

  // out = W row, of a small matrix [out, N].
  static void multiply_row(const std::vector<float>& matrix, const float* row,
                           std::span<float> out) {
    const size_t columns = matrix.size() / out.size();
    for (size_t r = 0; r < out.size(); ++r) {
      float sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += matrix[r * columns + c] * row[c];
      out[r] = sum;
    }
  }

  // n + norm(R L n), which waits for what the mixer makes.
  void keep_laurel(const FrameRun& run, const TensorView& normed) const {
    OpContext& context = run.context;
    const int64_t rows = run.x.rows();
    normalise(context, run.mixer_norm, run.x, {}, 1.0f, normed);
    const TensorView low =
        context.workspace.take_tensor(DType::kF32, Shape{rows, spec_.laurel_rank});
    const TensorView kept = column_range(run.carried, spec_.carried.kept_column(hidden_), hidden_);
    multiply(context, left_, normed, low);
    multiply(context, right_, low, kept);
    normalise(context, laurel_norm_, kept, {}, 1.0f, kept);
    for_frame_rows(context, rows, [&](int64_t t) {
      float* const row = f32_row(kept, t);
      const float* const own = f32_row(normed, t);
      for (int64_t c = 0; c < hidden_; ++c) row[c] += own[c];
    });
  }

  const AltUpSpec spec_;
  const int64_t hidden_;
  std::vector<float> predict_;  // [N N, N]
  std::vector<float> correct_;  // [N, N]
  std::vector<float> scale_;    // [D] of the corrected active stream, for the token's input
  LinearLayer router_;          // [N, D]
  NormWeights router_norm_;     // [D], divided by D
  LinearLayer left_;            // [laurel_rank, D]
  LinearLayer right_;           // [D, laurel_rank]
  NormWeights laurel_norm_;     // [D]
  TokenInputBranch input_;
};

}  // namespace

std::unique_ptr<LayerFrame> make_frame(const AltUpSpec& spec, int64_t hidden) {
  return std::make_unique<AltUpFrame>(spec, hidden);
}

}  // namespace headrace
