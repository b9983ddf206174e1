// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

// Bytes: what the kernel calls available, within what the limits of the process's control groups
// leave; pages of files that a group can give back count as free. Empty: the kernel does not say.
// `root` stands in front of /proc and /sys (for tests).
std::optional<int64_t> free_memory_bytes(const std::string& root = "");

}  // namespace headrace
