// The tiny models that a GPU refuses by name, as it has no kernels of some part of theirs yet.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

inline bool is_of_cpus_alone(const std::string& path) {
  constexpr std::string_view kNames[] = {"bloom",           "deepseek32", "gemma3n", "gemma4",
                                         "glm-dsa",         "minimax",    "mpt",     "openai-gpt",
                                         "recurrent-gemma", "rwkv7"};
  constexpr std::string_view kOthers[] = {"minimax-m2"};  // that begin like them
  const std::string name = std::filesystem::path(path).filename().string();
  const auto begins = [&](std::string_view of) { return name.starts_with(of); };
  return std::ranges::any_of(kNames, begins) && std::ranges::none_of(kOthers, begins);
}

// What a GPU says of them.
inline bool is_refused_on_a_gpu(const Status& status) {
  return status.code() == StatusCode::kUnsupported &&
         status.message().find("no kernels on a GPU yet: use --device cpu") != std::string::npos;
}

}  // namespace headrace
