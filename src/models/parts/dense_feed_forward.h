// The feed-forward network of transformers: down(act(gate(x)) * up(x)), or down(act(up(x))).
#pragma once

#include <limits>
#include <memory>

#include "models/parts/gate_limits.h"
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
  ClampedSwishShape swish;  // of Activation::kClampedSwish
  bool bias = false;
  // Of gates, those above the row's mean + so many of its deviations stay, less that; the others
  // are 0 (Gemma 3n). NaN: all stay as they are.
  float gate_cutoff = std::numeric_limits<float>::quiet_NaN();
  GateLimits limits;          // where it is gated
  const char* name_end = "";  // of its tensors' names: ffn_up_shexp
  bool sub_norm = false;      // RMSNorm of activated rows, ffn_sub_norm (BitNet); gated
  float norm_eps = 0.0f;      // of it
};

std::unique_ptr<FeedForward> make_part(const DenseSpec& spec, int64_t hidden);

}  // namespace headrace
