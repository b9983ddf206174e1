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
  constexpr std::string_view kNames[] = {"hy-v4",     "step35",    "step37", "minimax-m3",
                                         "deepseek4", "qwen4-exp", "inkling"};
  const std::string name = std::filesystem::path(path).filename().string();
  return std::ranges::any_of(kNames, [&](std::string_view of) { return name.starts_with(of); });
}

// What a GPU says of them.
inline bool is_refused_on_a_gpu(const Status& status) {
  return status.code() == StatusCode::kUnsupported &&
         status.message().find("no kernels on a GPU yet: use --device cpu") != std::string::npos;
}

}  // namespace headrace
