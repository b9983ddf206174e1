// What a layer of its own adds to a product whose matrix it shares with others: y += B A x, as LoRA
// has it, but a part of the model.
#pragma once

#include <string>
#include <vector>

#include "models/layer_tensors.h"
#include "ops/op.h"

namespace headrace {

class LowRankAddition {
 public:
  // A part of y's columns, one after the other; tensors name.a.weight [rank, K] and name.b.weight
  // [columns, rank].
  struct Part {
    std::string name;
    int64_t columns = 0;
  };
  Status load(LayerTensors& tensors, const std::vector<Part>& parts, int64_t rank, int64_t k);
  std::vector<LinearWeight*> matrices();
  // Columns of the scratch rows that add() takes.
  int64_t low_columns() const { return rank_ * static_cast<int64_t>(ups_.size()); }
  int64_t op_workspace_bytes(int64_t rows) const;
  // `low` [T, low_columns()]
  void add(OpContext& context, const ConstTensorView& x, const TensorView& y,
           const TensorView& low) const;

 private:
  int64_t rank_ = 0;
  LinearLayer down_;              // [parts rank, K]
  std::vector<LinearLayer> ups_;  // [columns, rank] each
};

}  // namespace headrace
