// Limits of a gated network's gates and ups, between its first product and its activation
// (Hunyuan V4, Step 3.5): gates are at most so large, ups neither more nor less.
#pragma once

#include "models/row_views.h"
#include "ops/rows/soft_cap.h"

namespace headrace {

// 0: none.
struct GateLimits {
  float gate = 0.0f;  // before the activation
  float up = 0.0f;

  bool any() const { return gate > 0 || up > 0; }
};

// gate_up: [T, 2F], gates, then ups; in place.
inline void limit_gates(OpContext& context, const GateLimits& limits, const TensorView& gate_up) {
  const int64_t width = gate_up.columns() / 2;
  if (limits.gate > 0) {
    soft_cap(context,
             {.x = column_range(gate_up, 0, width), .cap = limits.gate, .kind = CapKind::kAtMost});
  }
  if (limits.up > 0) {
    soft_cap(context,
             {.x = column_range(gate_up, width, width), .cap = limits.up, .kind = CapKind::kClamp});
  }
}

}  // namespace headrace
