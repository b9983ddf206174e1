#include "models/parts/token_input_frame.h"

#include <algorithm>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/scale_rows.h"
#include "tensor/arena_places.h"

namespace headrace {

Status TokenInputBranch::load(LayerTensors& tensors) {
  MatrixStack gate{.columns = hidden_}, out{.columns = carried_.input_width};
  gate.rows = {{"inp_gate", carried_.input_width}};
  out.rows = {{"proj", hidden_}};
  HR_ASSIGN_OR_RETURN(gate_, tensors.matrix(gate));
  HR_ASSIGN_OR_RETURN(out_, tensors.matrix(out));
  norm_ = {.kind = NormKind::kRms, .eps = carried_.norm_eps};
  return tensors.read_norm("post_norm", hidden_, norm_);
}

// Of f32, the widest that activations are.
void TokenInputBranch::place(ArenaPlaces& places, int64_t rows) const {
  places.take_tensor(DType::kF32, Shape{rows, carried_.input_width});
  places.take_tensor(DType::kF32, Shape{rows, hidden_});
}

int64_t TokenInputBranch::op_workspace_bytes(int64_t rows) const {
  return std::max(linear_workspace_bytes(rows, gate_.weight),
                  linear_workspace_bytes(rows, out_.weight));
}

TensorView TokenInputBranch::run(OpContext& context, const ConstTensorView& x,
                                 const TensorView& carried) const {
  const int64_t rows = x.rows(), width = carried_.input_width;
  const TensorView gated = context.workspace.take_tensor(x.dtype, Shape{rows, width});
  const TensorView branch = context.workspace.take_tensor(x.dtype, Shape{rows, hidden_});
  multiply(context, gate_, x, gated);
  gated_activation(context, {.gate_up = gated,
                             .activation = Activation::kGeluTanh,
                             .out = gated,
                             .up = column_range(carried, carried_.input_column(layer_), width)});
  multiply(context, out_, gated, branch);
  normalise(context, norm_, branch, {}, 1.0f, branch);
  return branch;
}

namespace {

class TokenInputFrame final : public LayerFrame {
 public:
  TokenInputFrame(const TokenInputSpec& spec, int64_t hidden)
      : spec_(spec), branch_(spec.carried, spec.layer, hidden) {}

  Status load(LayerTensors& tensors) override {
    if (reads_tokens()) HR_RETURN_IF_ERROR(branch_.load(tensors));
    if (!spec_.scales) return ok_status();
    HR_ASSIGN_OR_RETURN(const std::vector<float> scale,
                        tensors.values("layer_output_scale.weight", Shape{1}));
    scale_ = scale.front();
    return ok_status();
  }
  std::vector<LinearWeight*> matrices() override {
    return reads_tokens() ? branch_.matrices() : std::vector<LinearWeight*>();
  }
  int64_t workspace_bytes(int64_t rows) const override {
    if (!reads_tokens()) return 0;
    ArenaPlaces places;
    branch_.place(places, rows);
    return places.bytes_for(TokenInputBranch::kPartsMax) + branch_.op_workspace_bytes(rows);
  }

  void after(const FrameRun& run) const override {
    Workspace::Mark mark(run.context.workspace);
    ConstTensorView branch;
    if (reads_tokens()) branch = branch_.run(run.context, run.x, run.carried);
    scale_rows(run.context, {.x = run.x, .added = branch, .scale = scale_});
  }

 private:
  bool reads_tokens() const { return spec_.carried.input_width > 0; }

  const TokenInputSpec spec_;
  TokenInputBranch branch_;
  float scale_ = 1.0f;
};

}  // namespace

std::unique_ptr<LayerFrame> make_frame(const TokenInputSpec& spec, int64_t hidden) {
  return std::make_unique<TokenInputFrame>(spec, hidden);
}

}  // namespace headrace
