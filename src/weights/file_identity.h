// What tells files from others, and from what they were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// What tells a file from itself at another time, whatever its times were set to: device, inode,
// size, modification and change. Empty: no such file.
std::string file_identity(const std::string& path);

// What tells the content of files from others', wherever they lie: a checksum of their sizes, of
// the first 64 KiB of each (headers), and of a megabyte spread over all of them, 64 KiB of each at
// least. Files that cannot be read are left out.
uint64_t files_sample(const std::vector<std::string>& paths);

}  // namespace headrace
