#include "apps/saved_chats.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "base/private_file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".json";
constexpr size_t kNameBytesMax = 80;
constexpr int64_t kFileBytesMax = 64 << 20;

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

Result<std::string> read_up_to(int file, int64_t bytes_max) {
  std::string text;
  char buffer[64 << 10];
  while (static_cast<int64_t>(text.size()) <= bytes_max) {
    const ssize_t count = ::read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unavailable(std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
  return invalid_argument("it grows while it is read");
}

// All of a file that `path` names: no folder, pipe or device, which may have no end.
Result<std::string> read_chat_file(const std::string& path) {
  // O_NONBLOCK: the opening of a pipe would wait for somebody who writes.
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return unavailable(std::strerror(errno));
  struct stat info {};
  Result<std::string> text = std::string();
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    text = invalid_argument("it is no file");
  } else if (info.st_size > kFileBytesMax) {
    text = invalid_argument(fmt::format("it has more than {} MB", kFileBytesMax >> 20));
  } else {
    text = read_up_to(file, kFileBytesMax);
  }
  ::close(file);
  return text;
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
  if (!is_path(name)) make_state_folder(folder_);
  const std::string part = path + ".part";
  const int file = create_private_file(part);
  if (file < 0) return write_failed(path);
  Status written = write_all_to(file, conversation.to_text(), path);
  // Before the rename: else a machine that goes down may keep the name of a file without its text.
  if (written.ok() && ::fsync(file) != 0) written = write_failed(path);
  if (::close(file) != 0 && written.ok()) written = write_failed(path);
  if (written.ok() && std::rename(part.c_str(), path.c_str()) != 0) written = write_failed(path);
  if (written.ok()) return path;
  ::unlink(part.c_str());
  return written;
}

bool SavedChats::has(std::string_view name) const {
  const Result<std::string> path = path_of(name);
  std::error_code ignored;
  return path.ok() && fs::symlink_status(*path, ignored).type() != fs::file_type::not_found;
}

Result<Conversation> SavedChats::load(std::string_view name) const {
  HR_ASSIGN_OR_RETURN(const std::string path, path_of(name));
  const Result<std::string> text = read_chat_file(path);
  if (!text.ok()) {
    return not_found(fmt::format("'{}' cannot be read ({}): /load lists what there is", name,
                                 text.status().message()));
  }
  Result<Conversation> conversation = Conversation::parse(*text);
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

bool make_state_folder(const std::string& folder) {
  std::string made;
  for (const fs::path& part : fs::path(folder)) {
    made = (fs::path(made) / part).string();
    if (::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST && errno != EISDIR) {
      std::error_code ignored;
      if (!fs::is_directory(made, ignored)) return false;
    }
  }
  return true;
}

std::string state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state == '/') return (fs::path(state) / "headrace").string();
  if (home == nullptr || *home == '\0') return {};
  return (fs::path(home) / ".local" / "state" / "headrace").string();
}

}  // namespace headrace
