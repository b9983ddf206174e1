// Medusa heads (Cai et al., 2024): of a model's last hidden row, behind its final norm, head k says
// which token stands k + 2 places behind the row's. Each is residual blocks, x := x + silu(W x +
// b), and an output matrix of its own. Immutable: any thread, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/layer_weights.h"
#include "models/model.h"

namespace headrace {

struct MedusaSpec {
  int32_t heads = 0;
  int32_t blocks = 1;  // of each head
  int32_t hidden_size = 0;
  int32_t vocab_size = 0;   // rows of an output matrix
  int32_t output_rows = 0;  // of these, the first ones alone; 0: all

  int32_t logit_count() const { return output_rows > 0 ? output_rows : vocab_size; }
};

class MedusaHeads {
 public:
  // The heads' tensors, as the makers of Medusa name them ("0.0.linear.weight", "0.1.weight") or as
  // vLLM does ("blocks.0.layers.0.weight", "lm_heads.0.weight"), either behind "medusa_heads.".
  // Errors name the source and the tensor. CPU.
  static Result<std::unique_ptr<MedusaHeads>> load(const MedusaSpec& spec,
                                                   const WeightSource& source, Device& device,
                                                   ComputeType compute);

  const MedusaSpec& spec() const { return spec_; }
  int64_t weight_bytes() const;
  // Of the workspace that logits() takes for so many rows.
  int64_t workspace_bytes(int64_t rows) const;
  // What head `index` says of rows [R, D]: logits [R, logit_count].
  void logits(OpContext& context, int32_t index, const ConstTensorView& rows,
              const TensorView& logits) const;

 private:
  struct Head {
    std::vector<LinearLayer> blocks;  // [blocks] of [D, D]
    LinearLayer output;               // [logit_count, D]
  };
  explicit MedusaHeads(const MedusaSpec& spec) : spec_(spec) {}

  const MedusaSpec spec_;
  std::vector<Head> heads_;
};

}  // namespace headrace
