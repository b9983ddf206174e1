// Layers whose rows themselves are normalised. MiniMax (2025) does so before each part, and what a
// branch is added to are these rows, times a number:
//   x := norm(x);   x := mixer_scale (x + mixer(x));   x := norm(x);   x := network_scale (x +
//   network(x))
// GPT (Radford et al., 2018) does so behind each part:
//   x := norm(x + mixer(x));   x := norm(x + network(x))
// The frame norms and scales; parts read x as it is, and branches are added as everywhere.
#pragma once

#include <memory>

#include "models/parts/layer_frame.h"

namespace headrace {

struct NormedRowsSpec {
  float mixer_scale = 1.0f;
  float network_scale = 1.0f;
  NormKind norm = NormKind::kRms;
  float norm_eps = 0.0f;
  bool behind = false;  // each part, and not before it
};

std::unique_ptr<LayerFrame> make_frame(const NormedRowsSpec& spec, int64_t hidden);

}  // namespace headrace
