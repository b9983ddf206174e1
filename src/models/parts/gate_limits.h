// Limits of a gated network's gates and ups, between its first product and its activation
// (Hunyuan V4, Step 3.5): gates are at most so large, ups neither more nor less.
#pragma once

#include <string>

#include "base/status.h"
#include "models/row_views.h"
#include "ops/rows/activation_row.h"
#include "ops/rows/soft_cap.h"
#include "tensor/device.h"

namespace headrace {

// 0: none.
struct GateLimits {
  float gate = 0.0f;  // before the activation
  float up = 0.0f;

  bool any() const { return gate > 0 || up > 0; }
};

// kUnsupported, naming what to do, where a GPU has no kernels of what such gates become. `of`: what
// has them.
inline Status check_gates(const std::string& of, const DeviceTraits& device,
                          const GateLimits& limits, const ClampedSwishShape& swish) {
  if (device.kind == DeviceKind::kCpu) return ok_status();
  constexpr const char* kRemedy = " no kernels on a GPU yet: use --device cpu";
  if (limits.any()) return unsupported(of + " whose gates have a limit have" + kRemedy);
  if (swish.is_usual()) return ok_status();
  return unsupported(of + " of a clamped swish of other numbers than 1.702 and 7 have" + kRemedy);
}

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
