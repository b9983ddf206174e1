#include "models/parts/branch_output.h"

#include <algorithm>
#include <utility>

#include "models/row_views.h"
#include "ops/linear/linear.h"

namespace headrace {
namespace {

// Outputs of one group of packed rows stay together.
constexpr int64_t kOutputUnit = kLinearGroupRows;

}  // namespace

void BranchOutput::split(const ShardSpec& shard, Shares inputs) {
  shard_ = shard;
  inputs_ = std::move(inputs);
  outputs_ = Shares(outputs_.total(), shard.ranks, kOutputUnit);
}

MatrixStack BranchOutput::stack(MatrixStack::Rows matrix, bool bias) const {
  if (gathers()) matrix.take(outputs_.first(shard_.rank), outputs_.count(shard_.rank));
  return {.rows = {std::move(matrix)}, .columns = inputs_.total(), .bias = bias};
}

Status BranchOutput::load(LayerTensors& tensors, const MatrixStack::Rows& matrix, bool bias) {
  if (!shard_.is_split() || gathers()) {
    MatrixStack whole = stack(matrix, bias);
    whole.adapts = is_branch_ && !shard_.is_split();
    HR_ASSIGN_OR_RETURN(LinearLayer layer, tensors.matrix(whole));
    parts_.push_back(std::move(layer));
    return ok_status();
  }
  const int32_t first = shard_.all_on_one ? 0 : shard_.rank;
  const int32_t last = shard_.all_on_one ? shard_.ranks : shard_.rank + 1;
  for (int32_t r = first; r < last; ++r) {
    MatrixStack part = stack(matrix, bias && r == 0);  // the bias is added once
    part.take_columns(inputs_.first(r), inputs_.count(r));
    HR_ASSIGN_OR_RETURN(LinearLayer layer, tensors.matrix(part));
    parts_.push_back(std::move(layer));
  }
  return ok_status();
}

std::vector<LinearWeight*> BranchOutput::matrices() {
  std::vector<LinearWeight*> weights;
  for (LinearLayer& part : parts_) weights.push_back(&part.weight);
  return weights;
}

int64_t BranchOutput::op_workspace_bytes(int64_t rows) const {
  int64_t bytes = 0;
  for (const LinearLayer& part : parts_) {
    bytes = std::max(bytes, linear_workspace_bytes(rows, part.weight));
  }
  return bytes;
}

TensorView BranchOutput::own_columns(const TensorView& rows) const {
  if (!gathers()) return column_range(rows, 0, rows.columns());
  return column_range(rows, inputs_.first(shard_.rank), own_width());
}

void BranchOutput::end(ResidualBranch& branch, const TensorView& rows) const {
  OpContext& context = branch.context();
  if (!shard_.is_split()) return branch.end_with(parts_.front(), rows);
  const TensorView y = branch.end_with_rows();
  multiply(context, 0, rows, own_outputs(y));
  for (int32_t p = 1; p < part_count(); ++p) {
    const LinearLayer& part = parts_[static_cast<size_t>(p)];
    linear(context, {.x = input_of(p, rows),
                     .weight = &part.weight,
                     .bias = part.bias.data(),
                     .y = y,
                     .output = LinearOutput::kAccumulate});
  }
  join(context, y);
}

bool BranchOutput::ends_with_gates(ResidualBranch& branch, const GatedActivationArgs& gates) const {
  return !shard_.is_split() && branch.ends_with_gates(parts_.front(), gates);
}
void BranchOutput::end(ResidualBranch& branch, const GatedActivationArgs& gates) const {
  branch.end_with(parts_.front(), gates);
}

ConstTensorView BranchOutput::input_of(int32_t part, const TensorView& rows) const {
  if (!shard_.is_split() || !shard_.all_on_one) return rows;
  return column_range(rows, inputs_.first(part), inputs_.count(part));
}

void BranchOutput::multiply(OpContext& context, int32_t part, const TensorView& rows,
                            const TensorView& y) const {
  if (gathers()) context.mesh.tensor->all_gather(context.stream, rows, inputs_.starts());
  headrace::multiply(context, parts_[static_cast<size_t>(part)], input_of(part, rows), y);
}

TensorView BranchOutput::own_outputs(const TensorView& y) const {
  if (!gathers()) return y;
  return column_range(y, outputs_.first(shard_.rank), outputs_.count(shard_.rank));
}

void BranchOutput::join(OpContext& context, const TensorView& y) const {
  if (gathers()) return context.mesh.tensor->all_gather(context.stream, y, outputs_.starts());
  if (reduces()) context.mesh.tensor->all_reduce_sum(context.stream, y);
}

}  // namespace headrace
