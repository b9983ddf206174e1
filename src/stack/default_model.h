// The model that is used where none is named.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace headrace {

// $HEADRACE_MODEL (a file or a folder), else SmolLM2-135M-Instruct in the user's cache folder.
// kNotFound, with how to get it, when there is no such file.
Result<std::string> default_model_path();

// $XDG_CACHE_HOME, else ~/.cache; there or not.
std::filesystem::path user_cache_folder();
// "headrace" in it.
std::filesystem::path program_cache_folder();

// The variable's value; empty where it is not set.
std::string environment(const char* name);

}  // namespace headrace
