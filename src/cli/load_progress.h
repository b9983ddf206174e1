// A model's load under a line that shows how far it is (terminal/progress.h).
#pragma once

#include <memory>

#include "stack/model_stack.h"

namespace headrace {

// `source`: as of ModelStack::load().
Result<std::unique_ptr<ModelStack>> load_with_progress(
    const StackOptions& options, std::unique_ptr<ModelSource> source = nullptr);

}  // namespace headrace
