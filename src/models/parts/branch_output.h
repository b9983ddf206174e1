// BranchOutput: the product that ends a part of a layer, y = x W^T (+ bias), where ranks share x:
// each has some of its columns. One rank alone has all.
#pragma once

#include <string>
#include <vector>

#include "models/layer_tensors.h"
#include "models/residual_stream.h"
#include "models/shard.h"

namespace headrace {

class BranchOutput {
 public:
  // x has `columns` columns, y `hidden`.
  BranchOutput(int64_t columns, int64_t hidden) : inputs_(columns, 1, 1), outputs_(hidden, 1, 1) {}
  // `inputs`: the columns of x that each rank has. Before load().
  void split(const ShardSpec& shard, Shares inputs);
  // Tensors name.weight [hidden, columns] and name.bias.
  Status load(LayerTensors& tensors, const std::string& name, bool bias) {
    is_branch_ = true;
    return load(tensors, MatrixStack::Rows{name, outputs_.total()}, bias);
  }
  // The same of `matrix`: a tensor, or one matrix of a stack, of branches that are sums.
  Status load(LayerTensors& tensors, const MatrixStack::Rows& matrix, bool bias);

  std::vector<LinearWeight*> matrices();
  int64_t op_workspace_bytes(int64_t rows) const;
  // Columns of the rows that end() reads.
  int64_t input_width() const { return reduces() ? own_width() : inputs_.total(); }
  // Of these rows, the columns that this rank's part computes.
  TensorView own_columns(const TensorView& rows) const;
  // Ends the branch. `rows` [T, input_width()] have this rank's columns.
  void end(ResidualBranch& branch, const TensorView& rows) const;

  // The same where rows are act(gate) * up, `gates.out` of all columns, if a device has one op for
  // it.
  bool ends_with_gates(ResidualBranch& branch, const GatedActivationArgs& gates) const;
  void end(ResidualBranch& branch, const GatedActivationArgs& gates) const;

  // For branches that are sums of such products, in place of end(): each multiply() gives this
  // rank's outputs of one of them, [T, output_width()]; what is added up of these lies in
  // own_outputs() of the branch's rows when join() makes them whole.
  int64_t output_width() const {
    return gathers() ? outputs_.count(shard_.rank) : outputs_.total();
  }
  // Parts of the input whose sums are added up one by one: where one rank has those of all.
  int32_t part_count() const { return static_cast<int32_t>(parts_.size()); }
  void multiply(OpContext& context, int32_t part, const TensorView& rows,
                const TensorView& y) const;
  TensorView own_outputs(const TensorView& y) const;
  void join(OpContext& context, const TensorView& y) const;

 private:
  bool reduces() const {
    return shard_.is_split() && shard_.sums == ShardSums::kReduce && !shard_.all_on_one;
  }
  bool gathers() const { return shard_.is_split() && shard_.sums == ShardSums::kGather; }
  int64_t own_width() const { return inputs_.count(shard_.rank); }
  ConstTensorView input_of(int32_t part, const TensorView& rows) const;
  MatrixStack stack(MatrixStack::Rows matrix, bool bias) const;

  bool is_branch_ = false;  // its product alone
  ShardSpec shard_;
  Shares inputs_;   // columns of x
  Shares outputs_;  // of y, of kGather
  // One, but where one rank has the parts of all: the sums of these are added up.
  std::vector<LinearLayer> parts_;
};

}  // namespace headrace
