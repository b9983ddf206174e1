// What a layer of Gemma 4 does to its rows behind its network: it adds what it makes of its own
// input of the token, x := x + norm(W2 (gelu(W1 x) * input)), and multiplies them by a number.
#pragma once

#include <memory>

#include "models/parts/carried_rows.h"
#include "models/parts/layer_frame.h"
#include "tensor/arena_places.h"

namespace headrace {

struct TokenInputSpec {
  CarriedSpec carried;
  int32_t layer = 0;
  bool scales = false;  // layer_output_scale
};

std::unique_ptr<LayerFrame> make_frame(const TokenInputSpec& spec, int64_t hidden);

// The branch of a token's input: tensors inp_gate, proj and post_norm.
class TokenInputBranch {
 public:
  TokenInputBranch(const CarriedSpec& carried, int32_t layer, int64_t hidden)
      : carried_(carried), layer_(layer), hidden_(hidden) {}
  Status load(LayerTensors& tensors);
  std::vector<LinearWeight*> matrices() { return {&gate_.weight, &out_.weight}; }
  void place(ArenaPlaces& places, int64_t rows) const;
  int64_t op_workspace_bytes(int64_t rows) const;
  static constexpr int64_t kPartsMax = 2;
  // out = norm(W2 (gelu(W1 x) * input)) of rows x [R, D], in the workspace.
  TensorView run(OpContext& context, const ConstTensorView& x, const TensorView& carried) const;

 private:
  const CarriedSpec carried_;
  const int32_t layer_;
  const int64_t hidden_;
  LinearLayer gate_;  // [P, D]
  LinearLayer out_;   // [D, P]
  NormWeights norm_;  // [D]
};

}  // namespace headrace
