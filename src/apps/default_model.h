// The model that is used where none is named.
#pragma once

#include <string>

#include "base/status.h"

namespace headrace {

// $HEADRACE_MODEL, else SmolLM2-135M-Instruct in the user's cache folder. kNotFound, with how to
// get it, when there is no such file.
Result<std::string> default_model_path();

}  // namespace headrace
