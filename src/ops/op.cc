#include "ops/op.h"

#include <chrono>

#include <fmt/format.h>

#include "base/log.h"

namespace headrace {

int64_t op_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t bytes_of(const ConstTensorView& view) {
  return view.data == nullptr ? 0 : tensor_bytes(view.dtype, view.shape).value_or(0);
}

void note_fallback(Device& device, std::string_view kernel, const OpCost& cost) {
  if (!device.first_time(fmt::format("{} {}", kernel, cost.shape))) return;
  log_warning("{} runs for {}: no fast kernel takes this shape and type, it is many times slower",
              kernel, cost.shape);
}

OpCost row_op_cost(int64_t rows, int64_t columns, int64_t bytes) {
  return {.shape = std::to_string(columns), .rows = rows, .bytes = bytes};
}

}  // namespace headrace
