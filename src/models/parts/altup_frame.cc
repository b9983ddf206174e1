#include "models/parts/altup_frame.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/parts/token_input_frame.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/altup.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/scale_rows.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

class AltUpFrame final : public LayerFrame {
 public:
  AltUpFrame(const AltUpSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), input_(spec.carried, spec.layer, hidden) {}

  Status load(LayerTensors& tensors) override {
    const int64_t streams = spec_.carried.streams;
    HR_ASSIGN_OR_RETURN(correct_,
                        matrix(tensors, "altup_correct_coef.weight", Shape{streams, streams}));
    HR_ASSIGN_OR_RETURN(scale_, tensors.vector("altup_correct_scale.weight", hidden_));
    HR_ASSIGN_OR_RETURN(
        predict_, matrix(tensors, "altup_predict_coef.weight", Shape{streams * streams, streams}));
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
    const TensorView normed = context.workspace.take_tensor(run.x.dtype, run.x.shape);
    const TensorView modes = modes_of(context, run.x, normed);
    altup_predict(context, {.streams = streams(run),
                            .modes = modes,
                            .weights = predict_.data(),
                            .active = spec_.carried.active_stream,
                            .x = run.x});
    keep_laurel(run, normed);
  }

  void between(const FrameRun& run) const override {
    scale_rows(run.context, {.x = run.x, .added = laurel(run), .divisor = std::sqrt(2.0f)});
  }

  void after(const FrameRun& run) const override {
    OpContext& context = run.context;
    Workspace::Mark mark(context.workspace);
    const TensorView scaled = context.workspace.take_tensor(run.x.dtype, run.x.shape);
    const TensorView modes = modes_of(context, run.x, scaled);
    altup_correct(context, {.streams = streams(run),
                            .modes = modes,
                            .weights = correct_.data(),
                            .active = spec_.carried.active_stream,
                            .x = run.x,
                            .scale = spec_.scales_corrected ? scale_.data() : nullptr,
                            .out = scaled});
    const TensorView branch = input_.run(context, scaled, run.carried);
    for (int32_t s = 1; s < spec_.carried.streams; ++s) {
      residual_add(context, {.x = stream(run, s), .residual = branch});
    }
    row_gather(context, {.x = stream(run, spec_.carried.active_stream), .rows = {}, .out = run.x});
  }

 private:
  // A small one, as the op of streams takes it.
  static Result<DeviceVector> matrix(LayerTensors& tensors, const char* name, const Shape& shape) {
    HR_ASSIGN_OR_RETURN(const std::vector<float> values, tensors.values(name, shape));
    return tensors.made_vector(values);
  }

  TensorView streams(const FrameRun& run) const {
    return column_range(run.carried, spec_.carried.stream_column(0, hidden_),
                        spec_.carried.streams * hidden_);
  }
  TensorView stream(const FrameRun& run, int32_t index) const {
    return column_range(run.carried, spec_.carried.stream_column(index, hidden_), hidden_);
  }
  TensorView laurel(const FrameRun& run) const {
    return column_range(run.carried, spec_.carried.kept_column(hidden_), hidden_);
  }

  // W norm(rows) / D, [R, N]; `normed` [R, D] is written over.
  TensorView modes_of(OpContext& context, const TensorView& rows, const TensorView& normed) const {
    const TensorView modes =
        context.workspace.take_tensor(DType::kF32, Shape{rows.rows(), spec_.carried.streams});
    normalise(context, router_norm_, rows, {}, 1.0f, normed);
    multiply(context, router_, normed, modes);
    return modes;
  }

  // n + norm(R L n), which waits for what the mixer makes.
  void keep_laurel(const FrameRun& run, const TensorView& normed) const {
    OpContext& context = run.context;
    normalise(context, run.mixer_norm, run.x, {}, 1.0f, normed);
    const TensorView low =
        context.workspace.take_tensor(normed.dtype, Shape{run.x.rows(), spec_.laurel_rank});
    const TensorView kept = laurel(run);
    multiply(context, left_, normed, low);
    multiply(context, right_, low, kept);
    normalise(context, laurel_norm_, kept, {}, 1.0f, kept);
    residual_add(context, {.x = kept, .residual = normed});
  }

  const AltUpSpec spec_;
  const int64_t hidden_;
  DeviceVector predict_;     // [N N, N]
  DeviceVector correct_;     // [N, N]
  DeviceVector scale_;       // [D] of the corrected active stream, for the token's input
  LinearLayer router_;       // [N, D]
  NormWeights router_norm_;  // [D], divided by D
  LinearLayer left_;         // [laurel_rank, D]
  LinearLayer right_;        // [D, laurel_rank]
  NormWeights laurel_norm_;  // [D]
  TokenInputBranch input_;
};

}  // namespace

std::unique_ptr<LayerFrame> make_frame(const AltUpSpec& spec, int64_t hidden) {
  return std::make_unique<AltUpFrame>(spec, hidden);
}

}  // namespace headrace
