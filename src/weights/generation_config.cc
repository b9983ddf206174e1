#include "weights/generation_config.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();

struct Row {
  std::string_view key;   // of generation_config.json
  std::string_view gguf;  // empty: GGUF files have none
  double low, high;
  bool above_low;  // (low, high]
  std::optional<float> SamplingDefaults::*number;
  std::optional<int32_t> SamplingDefaults::*integer;  // one of the two is null
};

// -1 and 0 of top_k turn it off; 0 of top_p is no value.
constexpr Row kRows[] = {
    {"temperature", "general.sampling.temp", 0, 100, false, &SamplingDefaults::temperature,
     nullptr},
    {"top_p", "general.sampling.top_p", 0, 1, true, &SamplingDefaults::top_p, nullptr},
    {"top_k", "general.sampling.top_k", -1, kInt32Max, false, nullptr, &SamplingDefaults::top_k},
    {"min_p", "general.sampling.min_p", 0, 1, false, &SamplingDefaults::min_p, nullptr},
    {"repetition_penalty", "general.sampling.penalty_repeat", 0.01, 100, false,
     &SamplingDefaults::repetition_penalty, nullptr},
    {"max_new_tokens", "", 1, kInt32Max, false, nullptr, &SamplingDefaults::max_new_tokens},
};

constexpr auto kKeys = [] {
  std::array<std::string_view, std::size(kRows)> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = kRows[i].key;
  return keys;
}();

bool in_range(const Row& row, double value) {
  return (row.above_low ? value > row.low : value >= row.low) && value <= row.high &&
         (row.integer == nullptr || value == std::trunc(value));
}

// False, and nothing is stored, outside the row's range.
bool store(const Row& row, double value, SamplingDefaults& defaults) {
  if (!in_range(row, value)) return false;
  if (row.integer == nullptr) {
    defaults.*row.number = static_cast<float>(value);
  } else {
    defaults.*row.integer = static_cast<int32_t>(std::max(value, 0.0));
  }
  return true;
}

Status wrong_value(const Row& row, std::string_view path, std::string_view key) {
  return corrupt(fmt::format("{}: {}: must be {} in {}{}, {}]", path, key,
                             row.integer == nullptr ? "a number" : "an integer",
                             row.above_low ? '(' : '[', row.low, row.high),
                 std::string(key));
}

}  // namespace

std::span<const std::string_view> generation_config_keys() { return kKeys; }

Result<SamplingDefaults> sampling_defaults_from_json(const Json& json, std::string_view path) {
  if (!json.is_object()) return corrupt(fmt::format("{}: must be a JSON object", path));
  SamplingDefaults defaults;
  for (const Row& row : kRows) {
    const Json* value = json.find(row.key);
    if (value == nullptr || value->is_null()) continue;
    if (!value->is_number() || !store(row, value->as_double(), defaults)) {
      return wrong_value(row, path, row.key);
    }
  }
  return defaults;
}

Result<SamplingDefaults> sampling_defaults_from_gguf(const GgufFile& file) {
  SamplingDefaults defaults;
  for (const Row& row : kRows) {
    if (row.gguf.empty()) continue;
    std::optional<double> value;
    if (row.integer != nullptr) {
      HR_ASSIGN_OR_RETURN(const std::optional<int64_t> integer, file.optional_int(row.gguf));
      if (integer) value = static_cast<double>(*integer);
    } else {
      HR_ASSIGN_OR_RETURN(value, file.optional_float(row.gguf));
    }
    if (value && !store(row, *value, defaults)) return wrong_value(row, file.name(), row.gguf);
  }
  return defaults;
}

std::string to_string(const SamplingDefaults& defaults) {
  std::string text;
  for (const Row& row : kRows) {
    const std::string separator = text.empty() ? "" : ", ";
    if (row.number != nullptr && defaults.*row.number) {
      text += fmt::format("{}{} {}", separator, row.key, *(defaults.*row.number));
    } else if (row.integer != nullptr && defaults.*row.integer) {
      text += fmt::format("{}{} {}", separator, row.key, *(defaults.*row.integer));
    }
  }
  if (defaults.seed) text += fmt::format("{}seed {}", text.empty() ? "" : ", ", *defaults.seed);
  return text;
}

}  // namespace headrace
