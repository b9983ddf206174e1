#include "server/request_fields.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headrace {
namespace {

constexpr size_t kMetadataPairsMax = 16, kMetadataKeyBytesMax = 64, kMetadataValueBytesMax = 512;

constexpr size_t kQuotedBytesMax = 32;        // of a client's word in a message
constexpr double kExactIntegersMax = 0x1p53;  // beyond it a double does not say which was meant

// What was sent, without its text.
std::string describe(const Json& value) {
  if (value.is_int()) return fmt::format("{}", value.as_int());
  if (value.is_double()) return fmt::format("{}", value.as_double());
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_string() && value.as_string().empty()) return "an empty string";
  if (value.is_string()) return "a string";
  if (value.is_array() && value.as_array().empty()) return "an empty array";
  if (value.is_array()) return "an array";
  return value.is_object() ? "an object" : std::string(value.type_name());
}

std::string describe(std::string_view noun, const FieldRange& range) {
  if (range.high > kExactIntegersMax) return fmt::format("{} of 64 bits", noun);
  return fmt::format("{} in {}{}, {}]", noun, range.above_low ? '(' : '[', range.low, range.high);
}

bool in_range(double x, const FieldRange& range) {
  return (range.above_low ? x > range.low : x >= range.low) && x <= range.high;
}

bool is_integral(const Json& value) {
  if (value.is_int()) return true;
  return value.is_double() && std::abs(value.as_double()) <= kExactIntegersMax &&
         value.as_double() == std::trunc(value.as_double());
}

}  // namespace

Status field_error(std::string_view name, std::string_view expected, const Json& value) {
  return invalid_argument(fmt::format("{} must be {}, got {}", name, expected, describe(value)),
                          std::string(name));
}

Status choice_error(std::string_view name, std::span<const std::string_view> choices,
                    const Json& value) {
  const bool quotable = value.is_string() && value.as_string().size() <= kQuotedBytesMax;
  return invalid_argument(
      fmt::format("{} must be one of {}, got {}", name, fmt::join(choices, ", "),
                  quotable ? write_json(value) : describe(value)),
      std::string(name));
}

Status check_field(std::string_view name, FieldType type, const FieldRange& range,
                   const Json& value, const FieldContext& context) {
  switch (type) {
    case FieldType::kBool:
      return value.is_bool() ? ok_status() : field_error(name, "true or false", value);
    case FieldType::kInteger:
      if (is_integral(value) && in_range(value.as_double(), range)) return ok_status();
      return field_error(name, describe("an integer", range), value);
    case FieldType::kNumber:
      if (value.is_number() && in_range(value.as_double(), range)) return ok_status();
      return field_error(name, describe("a number", range), value);
    case FieldType::kString:
      if (value.is_string() && value.as_string().size() <= context.limits.label_bytes_max) {
        return ok_status();
      }
      return field_error(
          name, fmt::format("a string of at most {} bytes", context.limits.label_bytes_max), value);
    case FieldType::kAny:
      return ok_status();
  }
  return ok_status();
}

int64_t integer_of(const Json& value) {
  return value.is_int() ? value.as_int() : static_cast<int64_t>(value.as_double());
}

Status check_refused(std::span<const RefusedField> refused, const Json& body) {
  for (const RefusedField& field : refused) {
    const Json* value = body.find(field.name);
    if (value && !value->is_null() && field.asks_for_something(*value)) {
      return invalid_argument(fmt::format("{} is not supported: {}", field.name, field.remedy),
                              std::string(field.name));
    }
  }
  return ok_status();
}

Status refuse_if_given(std::string_view name, const Json& body) {
  const Json* value = body.find(name);
  if (!value || value->is_null()) return ok_status();
  return invalid_argument(fmt::format("{} is not a field of this route: leave it out", name),
                          std::string(name));
}

Status in_field(std::string_view field, const Status& status) {
  return status.ok() ? status : invalid_argument(status.message(), std::string(field));
}

Result<std::vector<int32_t>> read_token_ids(std::string_view name, const Json& value,
                                            const FieldContext& context, size_t count_max) {
  const FieldRange range{0, static_cast<double>(context.vocab_size) - 1};
  if (!value.is_array()) return field_error(name, "an array of token ids", value);
  const Json::Array& items = value.as_array();
  if (items.size() > count_max) {
    return invalid_argument(
        fmt::format("{} must have at most {} token ids, got {}", name, count_max, items.size()),
        std::string(name));
  }
  std::vector<int32_t> ids;
  ids.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_integral(items[i]) || !in_range(items[i].as_double(), range)) {
      Status error =
          field_error(fmt::format("{}[{}]", name, i), describe("a token id", range), items[i]);
      return invalid_argument(error.message(), std::string(name));
    }
    ids.push_back(static_cast<int32_t>(integer_of(items[i])));
  }
  return ids;
}

Status check_metadata(const Json& metadata) {
  const auto is_pair = [](const Json::Member& member) {
    const auto& [key, value] = member;
    return !key.empty() && key.size() <= kMetadataKeyBytesMax && value.is_string() &&
           value.as_string().size() <= kMetadataValueBytesMax;
  };
  const bool good = metadata.is_object() && metadata.as_object().size() <= kMetadataPairsMax &&
                    std::all_of(metadata.as_object().begin(), metadata.as_object().end(), is_pair);
  if (good) return ok_status();
  return invalid_argument(
      fmt::format("metadata must be an object of at most {} texts, each of at most {} bytes with a "
                  "name of 1 to {}",
                  kMetadataPairsMax, kMetadataValueBytesMax, kMetadataKeyBytesMax),
      "metadata");
}

}  // namespace headrace
