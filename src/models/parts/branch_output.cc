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

MatrixStack BranchOutput::stack(const std::string& name, bool bias) const {
  MatrixStack::Rows rows{name, outputs_.total()};
  if (gathers()) rows.take(outputs_.first(shard_.rank), outputs_.count(shard_.rank));
  return {.rows = {std::move(rows)}, .columns = inputs_.total(), .bias = bias};
}

Status BranchOutput::load(LayerTensors& tensors, const std::string& name, bool bias) {
  if (!shard_.is_split() || gathers()) {
    HR_ASSIGN_OR_RETURN(LinearLayer layer, tensors.matrix(stack(name, bias)));
    parts_.push_back(std::move(layer));
    return ok_status();
  }
  const int32_t first = shard_.all_on_one ? 0 : shard_.rank;
  const int32_t last = shard_.all_on_one ? shard_.ranks : shard_.rank + 1;
  for (int32_t r = first; r < last; ++r) {
    MatrixStack part = stack(name, bias && r == 0);  // the bias is added once
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
  if (gathers()) {
    context.mesh.tensor->all_gather(context.stream, rows, inputs_.starts());
    multiply(context, parts_.front(), rows,
             column_range(y, outputs_.first(shard_.rank), outputs_.count(shard_.rank)));
    return context.mesh.tensor->all_gather(context.stream, y, outputs_.starts());
  }
  if (!shard_.all_on_one) {
    multiply(context, parts_.front(), rows, y);
    return context.mesh.tensor->all_reduce_sum(context.stream, y);
  }
  for (int32_t r = 0; r < shard_.ranks; ++r) {
    const LinearLayer& part = parts_[static_cast<size_t>(r)];
    linear(context, {.x = column_range(rows, inputs_.first(r), inputs_.count(r)),
                     .weight = &part.weight,
                     .bias = part.bias.data(),
                     .y = y,
                     .output = r == 0 ? LinearOutput::kStore : LinearOutput::kAccumulate});
  }
}

}  // namespace headrace
