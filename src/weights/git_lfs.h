// Git LFS leaves a small text in place of a large file that was not fetched: what people most often
// have instead of a model.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace headrace {

inline constexpr std::string_view kGitLfsProblem =
    "is a Git LFS pointer, not the file that it stands for (git lfs pull fetches it)";

inline bool is_git_lfs_pointer(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with("version https://git-lfs");
}

}  // namespace headrace
