#include "weights/json_members.h"

#include <fmt/format.h>

namespace headrace {

const Json* said_member(const Json& object, std::string_view name) {
  const Json* const found = object.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

Result<bool> flag_or(const Json& object, const ConfigSource& source, std::string_view name,
                     bool fallback) {
  const Json* const found = said_member(object, name);
  if (found == nullptr) return fallback;
  if (found->is_bool()) return found->as_bool();
  return source.corrupt_field(name, fmt::format("is {}, expected a boolean", found->type_name()));
}

Result<int32_t> count_or(const Json& object, const ConfigSource& source, std::string_view name,
                         int32_t fallback, int32_t min, int32_t max) {
  const Json* const found = said_member(object, name);
  if (found == nullptr) return fallback;
  if (found->is_int() && found->as_int() >= min && found->as_int() <= max) {
    return static_cast<int32_t>(found->as_int());
  }
  return source.corrupt_field(name, fmt::format("is no number from {} to {}", min, max));
}

Result<std::span<const Json>> entries_of_layers(const Json& list, const ConfigSource& source,
                                                std::string_view name, const ModelConfig& config) {
  if (!list.is_array()) {
    return source.corrupt_field(name, fmt::format("is {}, expected a list", list.type_name()));
  }
  const std::span<const Json> all = list.as_array();
  const auto layers = static_cast<size_t>(config.layers);
  if (all.size() == layers ||
      all.size() == layers + static_cast<size_t>(config.mixers.drafting_layers)) {
    return all.first(layers);
  }
  return source.corrupt_field(name,
                              fmt::format("{} entries for {} layers", all.size(), config.layers));
}

}  // namespace headrace
