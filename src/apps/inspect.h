// `headrace inspect FILE`: what a GGUF file holds and whether it runs here, from its headers alone.
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

// The report, ending in a newline. Fails only where the file cannot be parsed as GGUF: whatever
// else stands in the way of running it is part of the report.
Result<std::string> inspect_file(const std::string& path, const InspectOptions& options = {});

}  // namespace headrace
