// Members of a config.json as the readers of families take them. One that is null is not said.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "weights/model_family.h"

namespace headrace {

// Null: it is not said, or `object` is none.
const Json* said_member(const Json& object, std::string_view name);
// `fallback` where it is not said; an error of the field where it is something else.
Result<bool> flag_or(const Json& object, const ConfigSource& source, std::string_view name,
                     bool fallback);
Result<int32_t> count_or(const Json& object, const ConfigSource& source, std::string_view name,
                         int32_t fallback, int32_t min, int32_t max);
// A list with an entry for each layer, and perhaps for those that draft, which are left out.
Result<std::span<const Json>> entries_of_layers(const Json& list, const ConfigSource& source,
                                                std::string_view name, const ModelConfig& config);

}  // namespace headrace
