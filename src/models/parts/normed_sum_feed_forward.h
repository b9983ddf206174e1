// A network and a mixture side by side, each between norms of its own, the router behind a third
// (Gemma 4): norm1(network(ffn_norm(x))) + norm2(mixture(pre2(x))), of which the layer's own norm
// follows. It reads x itself.
#pragma once

#include <memory>

#include "models/parts/dense_feed_forward.h"
#include "models/parts/mixture_feed_forward.h"

namespace headrace {

struct NormedSumSpec {
  DenseSpec network;
  MixtureSpec mixture;
  float norm_eps = 0.0f;
};

std::unique_ptr<FeedForward> make_part(const NormedSumSpec& spec, int64_t hidden);

}  // namespace headrace
