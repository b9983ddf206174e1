// Whole units of counts and bytes, none of them negative.
#pragma once

#include <cstdint>

namespace headrace {

// How many units hold `value`.
constexpr int64_t divide_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

// The least multiple of `unit` that is no less than `value`.
constexpr int64_t round_up(int64_t value, int64_t unit) { return divide_up(value, unit) * unit; }

}  // namespace headrace
