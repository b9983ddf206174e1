// What a layer of Gemma 3n does around its mixer and its network. Of N streams of rows it computes
// one (AltUp; Baykal et al., 2023): before it predicts all streams of all, behind it corrects each
// by what the layer has made of the active one. Beside the mixer stands a branch of low rank
// (LAuReL; Menghani et al., 2024). To the streams but the first the layer then adds what it makes
// of its input of the token.
//   m(r)    = tanh(W norm(r) / D)
//   before  S_j := S_j + sum_i (P m(S_a))_(jN + i) S_i;   x := S_a
//   between x := (x + n + norm(R L n)) / sqrt(2), n the mixer's normalised input
//   after   S_j := S_j + (1 + (C m(x))_j) (x - S_a), then of j > 0 += branch(scale * S_a)
#pragma once

#include <memory>

#include "models/parts/carried_rows.h"
#include "models/parts/layer_frame.h"

namespace headrace {

struct AltUpSpec {
  CarriedSpec carried;
  int32_t layer = 0;
  int32_t laurel_rank = 0;
  bool scales_corrected = true;
};

std::unique_ptr<LayerFrame> make_frame(const AltUpSpec& spec, int64_t hidden);

}  // namespace headrace
