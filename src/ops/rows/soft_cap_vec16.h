// The body of the soft_cap kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/rows/soft_cap_row.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

void soft_cap_row(const SoftCapRow& row) {
  const Vec16 cap = broadcast(row.cap), least = broadcast(-row.cap);
  for (int64_t i = 0; i < row.count; i += 16) {
    const int64_t left = row.count - i;
    const Vec16 x = load_up_to(row.x + i, left, 0.0f);
    Vec16 capped;
    if (row.kind == CapKind::kSoft) {
      capped = mul(cap, tanh(div(x, cap)));
    } else {
      const Vec16 low = row.kind == CapKind::kClamp ? where_less(x, -row.cap, least, x) : x;
      capped = where_greater(low, row.cap, cap, low);
    }
    store_up_to(row.x + i, capped, left);
  }
}

}  // namespace
}  // namespace headrace
