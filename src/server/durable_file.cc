#include "server/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/private_file.h"

namespace headrace {

namespace fs = std::filesystem;

namespace {

constexpr size_t kBufferBytes = 256 << 10;

std::string unfinished(const std::string& path) { return path + std::string(kUnfinishedSuffix); }

}  // namespace

Status disk_error(const std::string& path, std::string_view what) {
  const int error = errno;
  if (error == ELOOP) {
    return invalid_argument(fmt::format("{}: is a symbolic link: name the file itself", path));
  }
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status(full ? StatusCode::kExhausted : StatusCode::kInternal,
                fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

Status make_folder(const std::string& folder) {
  fs::path so_far;
  int error = 0;
  for (const fs::path& part : fs::path(folder)) {
    so_far /= part;
    error = ::mkdir(so_far.c_str(), S_IRWXU) == 0 ? 0 : errno;
  }
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return ok_status();
  if (error == EEXIST) return invalid_argument(folder + ": is no folder");
  return invalid_argument(fmt::format("{}: cannot be made: {}", folder, std::strerror(error)));
}

Result<std::vector<fs::path>> files_in(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    paths.push_back(entry->path());
  }
  if (error) return invalid_argument(fmt::format("{}: {}", folder, error.message()));
  std::erase_if(paths, [](const fs::path& path) {
    return path.extension() == kUnfinishedSuffix && ::unlink(path.c_str()) == 0;
  });
  return paths;
}

Status sync_folder(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return disk_error(folder, "cannot be opened");
  const bool synced = ::fsync(file) == 0;
  const Status status = synced ? ok_status() : disk_error(folder, "cannot be synced");
  ::close(file);
  return status;
}

Status write_durably(const std::string& path, std::string_view content) {
  HR_ASSIGN_OR_RETURN(DurableFile file, DurableFile::create(path));
  HR_RETURN_IF_ERROR(file.append(content));
  return file.commit();
}

Result<DurableFile> DurableFile::create(std::string path) {
  const int file = create_private_file(unfinished(path));  // requests and answers of users
  if (file < 0) return disk_error(path, "cannot be written");
  return DurableFile(std::move(path), file);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      buffer_(std::move(other.buffer_)),
      size_(other.size_) {}

DurableFile::~DurableFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(unfinished(path_).c_str());
}

Status DurableFile::append(std::string_view bytes) {
  size_ += bytes.size();
  buffer_ += bytes;
  return buffer_.size() >= kBufferBytes ? flush() : ok_status();
}

Status DurableFile::flush() {
  if (!write_all(file_, buffer_)) return disk_error(path_, "cannot be written");
  buffer_.clear();
  return ok_status();
}

Status DurableFile::commit() {
  HR_RETURN_IF_ERROR(flush());
  if (::fsync(file_) != 0) return disk_error(path_, "cannot be synced");
  if (::rename(unfinished(path_).c_str(), path_.c_str()) != 0) {
    return disk_error(path_, "cannot be renamed into place");
  }
  ::close(std::exchange(file_, -1));
  return sync_folder(fs::path(path_).parent_path());
}

}  // namespace headrace
