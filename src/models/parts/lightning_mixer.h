// Lightning attention (Qin et al., 2024), as MiniMax-Text-01 has it: linear attention whose state,
// a matrix a head, forgets by one factor of its own a row:
//   q, k, v  := silu(x W);   S := exp(-slope) S + v k';   o = S q;   out = norm(o) * sigmoid(gate)
// That is a scan of state spaces (ops/states/ssd_scan.h) whose time steps are 1. The state is f32.
#pragma once

#include <memory>

#include "models/parts/layer_part.h"

namespace headrace {

struct LightningSpec {
  int32_t heads = 0;
  int32_t head_dim = 0;
  float slope_factor =
      1.0f;               // of the layer: head h forgets by exp(-slope_factor 2^(-8 (h+1) / heads))
  float norm_eps = 0.0f;  // of the norm over all heads

  int64_t columns() const { return int64_t{heads} * head_dim; }
};

std::unique_ptr<Mixer> make_part(const LightningSpec& spec, int64_t hidden);

}  // namespace headrace
