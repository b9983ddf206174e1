#include "tensor/free_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "tensor/cgroup.h"

namespace headrace {
namespace {

// The number behind `name` in a file of lines "name number" or "name: number kB"; an empty name:
// the file's first word.
std::optional<int64_t> number_of(const std::string& path, std::string_view name = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    int64_t value = 0;
    if (std::istringstream(line.substr(name.size())) >> value) return value;
  }
  return std::nullopt;
}

// What a group may still take; empty: it has no limit.
std::optional<int64_t> room_of(const CgroupFolder& folder) {
  const auto at = [&](const char* name) { return folder.path + "/" + name; };
  const auto limit = number_of(at(folder.v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = number_of(at(folder.v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;  // "max" is no number
  const char* const files = folder.v2 ? "inactive_file " : "total_inactive_file ";
  const int64_t reclaimable = number_of(at("memory.stat"), files).value_or(0);
  return std::max<int64_t>(0, *limit - *used + reclaimable);
}

}  // namespace

std::optional<int64_t> free_memory_bytes(const std::string& root) {
  std::optional<int64_t> least;
  if (const auto kib = number_of(root + "/proc/meminfo", "MemAvailable:")) least = *kib << 10;
  for (const CgroupFolder& folder : cgroup_folders("memory", root)) {
    if (const auto room = room_of(folder)) least = std::min(least.value_or(*room), *room);
  }
  return least;
}

}  // namespace headrace
