// The feed-forward network of transformers: down(act(gate(x)) * up(x)), or down(act(up(x))).
#pragma once

#include <memory>

#include "models/parts/layer_part.h"
#include "ops/rows/activation.h"

namespace headrace {

enum class DenseTensors {
  kGated,       // ffn_gate, ffn_up, ffn_down
  kGatedFused,  // the same, with gate and up stacked in ffn_up
  kPlain,       // ffn_up, ffn_down: not gated
};

struct DenseSpec {
  int32_t width = 0;
  DenseTensors tensors = DenseTensors::kGated;
  Activation activation = Activation::kSilu;
  bool bias = false;
  const char* name_end = "";  // of its tensors' names: ffn_up_shexp
};

std::unique_ptr<FeedForward> make_part(const DenseSpec& spec, int64_t hidden);

}  // namespace headrace
