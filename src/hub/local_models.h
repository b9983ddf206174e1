// The models of this machine: of the hub's cache, of Ollama's registry and from addresses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "stack/model_names.h"

namespace headrace {

struct LocalModel {
  std::string name;    // as -m takes it
  std::string format;  // "GGUF", "safetensors"
  int64_t bytes = 0;
  std::filesystem::file_time_type time;  // of when it came
};

// By name. What is not whole is not among them.
std::vector<LocalModel> local_models();

// Of the hub: the quant of `name`, else all that the cache has of the model, in every revision.
// What other revisions share stays with them. The bytes that became free; kNotFound: there is none.
Result<int64_t> remove_local_model(const ModelName& name);

}  // namespace headrace
