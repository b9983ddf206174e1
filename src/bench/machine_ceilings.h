// Rates that no program on this machine's CPUs can beat, measured on all threads of a device.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "ops/ceilings/ceiling.h"
#include "tensor/device.h"

namespace headrace {

// Bytes a second at which all threads together read a buffer of `bytes` again and again: the median
// of `repetitions` runs of a tenth of a second. kExhausted where there is no such memory.
Result<double> read_rate(Device& device, int64_t bytes, int repetitions);

// Multiplications and additions a second, in registers.
double multiply_rate(Device& device, const ArithmeticCeiling& ceiling, int repetitions);

// The best of this device for "int8", "bf16" or "f32", or null.
const ArithmeticCeiling* ceiling_for(const Device& device, std::string_view type);

}  // namespace headrace
