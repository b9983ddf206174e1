#include "apps/saved_chats.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "base/private_file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".json";
constexpr size_t kNameBytesMax = 80;

bool is_path(std::string_view name) {
  return name.find('/') != name.npos || name.ends_with(kEnding);
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && name[0] != '.' && name.back() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c >= 0x80 || std::strchr(" -_.", c) != nullptr;
         });
}

Status write_failed(const std::string& path) {
  return unavailable(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
}

Status write_all_to(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return write_failed(path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return ok_status();
}

}  // namespace

Result<std::string> SavedChats::path_of(std::string_view name) const {
  if (is_path(name)) return std::string(name);
  if (!is_name(name)) {
    return invalid_argument(fmt::format(
        "'{}' is no name for a chat: letters, digits, '-', '_' and blanks make one", name));
  }
  if (folder_.empty()) return unavailable("there is no folder for chats: $HOME is not set");
  return (fs::path(folder_) / (std::string(name) + std::string(kEnding))).string();
}

Result<std::string> SavedChats::save(std::string_view name,
                                     const Conversation& conversation) const {
  HR_ASSIGN_OR_RETURN(const std::string path, path_of(name));
  std::error_code ignored;
  if (!is_path(name)) fs::create_directories(folder_, ignored);
  const std::string part = path + ".part";
  const int file = create_private_file(part);
  if (file < 0) return write_failed(path);
  Status written = write_all_to(file, conversation.to_text(), path);
  if (::close(file) != 0 && written.ok()) written = write_failed(path);
  if (written.ok() && std::rename(part.c_str(), path.c_str()) != 0) written = write_failed(path);
  if (written.ok()) return path;
  ::unlink(part.c_str());
  return written;
}

Result<Conversation> SavedChats::load(std::string_view name) const {
  HR_ASSIGN_OR_RETURN(const std::string path, path_of(name));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file && !file.eof()) {
    return not_found(fmt::format("'{}' cannot be read: /load lists what there is", name));
  }
  Result<Conversation> conversation = Conversation::parse(text);
  if (!conversation.ok()) return conversation.status().with_context(fmt::format("'{}'", name));
  return conversation;
}

std::vector<std::string> SavedChats::names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const fs::path& path = entry.path();
    if (path.extension() == kEnding && is_name(path.stem().string())) {
      names.push_back(path.stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state != '\0') return (fs::path(state) / "headrace").string();
  if (home == nullptr || *home == '\0') return {};
  return (fs::path(home) / ".local" / "state" / "headrace").string();
}

}  // namespace headrace
