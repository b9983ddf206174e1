// The models of this machine: of the hub's cache, of Ollama's registry and from addresses.
#pragma once

#include <chrono>
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
  // Of when it came; 1970: unknown.
  std::filesystem::file_time_type time =
      std::chrono::file_clock::from_sys(std::chrono::sys_seconds());
};

// By name. What is not whole is not among them.
std::vector<LocalModel> local_models();

// Of the hub: the quant that `name` names, of its revision or of all; else its revision; else all
// that the cache has of the model. What other revisions share stays with them, and what a pull
// fetches with it. The bytes that became free; kNotFound: there is none; kUnavailable: all of it is
// to go, and a pull of it runs.
Result<int64_t> remove_local_model(const ModelName& name);

}  // namespace headrace
