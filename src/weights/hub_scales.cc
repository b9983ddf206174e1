#include "weights/hub_scales.h"

#include <cmath>

#include <fmt/format.h>

namespace headrace {
namespace {

// Of a half's bits, without the sign: neither 0 nor infinite.
bool is_number(uint16_t half) { return half > 0 && half < 0x7c00; }

}  // namespace

Status HubScales::check(bool as_half) const {
  for (int64_t i = 0; i < tensor_->elements; ++i) {
    const float scale = value(i);
    if (std::isfinite(scale) && scale != 0 &&
        (!as_half || is_number(float_to_half(std::abs(scale))))) {
      continue;
    }
    return hub_tensor_error(*tensor_, fmt::format("scale {} of {} is {}, which no weights can have",
                                                  i, tensor_->elements, scale));
  }
  return ok_status();
}

}  // namespace headrace
