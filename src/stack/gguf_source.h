// A .gguf file as a ModelSource.
#pragma once

#include <memory>
#include <string>

#include "stack/model_source.h"

namespace headrace {

Result<std::unique_ptr<ModelSource>> open_gguf_source(const std::string& path);

}  // namespace headrace
