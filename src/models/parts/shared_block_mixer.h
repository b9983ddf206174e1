// A layer of Zamba 2 (Zyphra, 2024) that begins with a block of which several layers share the
// weights: of the rows x and their embeddings e, side by side,
//   t = W network(norm(attention(norm([x, e]))));   y = mamba(norm(x + t))
// Each use of a block has W of its own and low-rank additions to the first products of the block's
// parts, as LoRA has them (Hu et al., 2021). It keeps keys and values and Mamba-2's states.
#pragma once

#include <memory>

#include "models/parts/attention_mixer.h"
#include "models/parts/mamba2_mixer.h"
#include "ops/rows/activation.h"

namespace headrace {

struct SharedBlockSpec {
  int32_t block = 0;        // the layer of the file whose tensors the block's are, "shared."
  int32_t use = 0;          // of all uses of blocks, in their order
  AttentionSpec attention;  // of two rows side by side
  int32_t width = 0;        // of the network
  Activation activation = Activation::kGeluErf;
  bool network_bias = false;
  int32_t rank = 0;  // of additions
  bool adds_to_attention = false;
  Mamba2Spec mamba;
  float norm_eps = 0.0f;
};

std::unique_ptr<Mixer> make_part(const SharedBlockSpec& spec, int64_t hidden);

}  // namespace headrace
