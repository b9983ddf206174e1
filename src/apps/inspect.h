// `headrace inspect MODEL`: what a model file or folder holds and whether it runs here, from its
// headers alone.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace headrace {

struct InspectOptions {
  bool json = false;     // one JSON object instead of text
  bool tensors = false;  // list every tensor
  int32_t context = 0;   // of the memory plan; 0 = the model's own context length
};

// The report, ending in a newline. Fails only where the model cannot be opened: whatever else
// stands in the way of running it is part of the report, in the words of a load that refuses.
Result<std::string> inspect_model(const std::string& path, const InspectOptions& options = {});

}  // namespace headrace
