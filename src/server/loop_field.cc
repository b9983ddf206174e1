#include "server/loop_field.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr FieldRange kLoopSizes{0, kLoopTokensMax};
constexpr FieldRange kLoopCounts{0, 1 << 20};

int32_t size_in(const Json& value) { return static_cast<int32_t>(value.as_double()); }

constexpr Field<LoopLimits> kLoopMembers[] = {
    {"max_pattern_size", FieldType::kInteger, kLoopSizes,
     [](const Json& v, const FieldContext&, LoopLimits& limits) {
       return limits.size_max = size_in(v), ok_status();
     }},
    {"min_pattern_size", FieldType::kInteger, kLoopSizes,
     [](const Json& v, const FieldContext&, LoopLimits& limits) {
       return limits.size_min = std::max(1, size_in(v)), ok_status();
     }},
    {"min_count", FieldType::kInteger, kLoopCounts,
     [](const Json& v, const FieldContext&, LoopLimits& limits) {
       return limits.count_min = size_in(v), ok_status();
     }},
};

}  // namespace

Status read_loop_field(const Json& value, const FieldContext& context,
                       GenerationSettings& settings) {
  if (!value.is_object()) return field_error("repetition_detection", "an object", value);
  const auto named = [](const std::string& message) {
    return invalid_argument("repetition_detection." + message, "repetition_detection");
  };
  LoopLimits limits{.count_min = 0};
  const Status status = read_fields<LoopLimits>(kLoopMembers, value, context, limits);
  if (!status.ok()) return named(status.message());
  if (limits.on() && limits.count_min < 2) {
    return named(fmt::format("min_count must be at least 2, got {}", limits.count_min));
  }
  if (limits.on() && limits.size_min > limits.size_max) {
    return named(fmt::format("min_pattern_size must be at most max_pattern_size ({}), got {}",
                             limits.size_max, limits.size_min));
  }
  settings.sampling.loop = limits;
  return ok_status();
}

}  // namespace headrace
