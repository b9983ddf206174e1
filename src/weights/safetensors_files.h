// The safetensors files of a model: one, or the shards that an index names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/safetensors.h"

namespace headrace {

using SafetensorsFiles = std::vector<std::shared_ptr<const SafetensorsFile>>;

// `path`: a file, or a folder with one or with shards, each of which holds what the index says.
// Errors name the file.
Result<SafetensorsFiles> open_safetensors_files(const std::string& path);

}  // namespace headrace
