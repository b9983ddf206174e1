// The model that is used where none is named.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace headrace {

// $HEADRACE_MODEL, else SmolLM2-135M-Instruct in the user's cache folder. kNotFound, with how to
// get it, when there is no such file.
Result<std::string> default_model_path();

// "headrace" in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache), there or not.
std::filesystem::path program_cache_folder();

}  // namespace headrace
