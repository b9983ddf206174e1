#include "models/parts/low_rank_addition.h"

#include <algorithm>
#include <utility>

#include "models/row_views.h"
#include "ops/linear/linear.h"

namespace headrace {

Status LowRankAddition::load(LayerTensors& tensors, const std::vector<Part>& parts, int64_t rank,
                             int64_t k) {
  rank_ = rank;
  MatrixStack down{.columns = k};
  for (const Part& part : parts) down.rows.push_back({part.name + ".a", rank});
  HR_ASSIGN_OR_RETURN(down_, tensors.matrix(down));
  for (const Part& part : parts) {
    MatrixStack stack{.columns = rank};
    stack.rows = {{part.name + ".b", part.columns}};
    HR_ASSIGN_OR_RETURN(LinearLayer up, tensors.matrix(stack));
    ups_.push_back(std::move(up));
  }
  return ok_status();
}

std::vector<LinearWeight*> LowRankAddition::matrices() {
  std::vector<LinearWeight*> all = {&down_.weight};
  for (LinearLayer& up : ups_) all.push_back(&up.weight);
  return all;
}

int64_t LowRankAddition::op_workspace_bytes(int64_t rows) const {
  int64_t bytes = linear_workspace_bytes(rows, down_.weight);
  for (const LinearLayer& up : ups_) {
    bytes = std::max(bytes, linear_workspace_bytes(rows, up.weight));
  }
  return bytes;
}

void LowRankAddition::add(OpContext& context, const ConstTensorView& x, const TensorView& y,
                          const TensorView& low) const {
  linear(context, {.x = x, .weight = &down_.weight, .bias = nullptr, .y = low});
  int64_t first = 0, from = 0;
  for (const LinearLayer& up : ups_) {
    linear(context, {.x = column_range(low, from, rank_),
                     .weight = &up.weight,
                     .bias = nullptr,
                     .y = column_range(y, first, up.weight.n()),
                     .output = LinearOutput::kAccumulate});
    first += up.weight.n();
    from += rank_;
  }
}

}  // namespace headrace
