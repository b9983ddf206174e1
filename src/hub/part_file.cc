#include "hub/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/private_file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr auto kLockPause = std::chrono::milliseconds(100);

Status file_trouble(const fs::path& path, int error) {
  const std::string line = fmt::format("{}: {}", path.string(), std::strerror(error));
  if (error != ENOSPC && error != EDQUOT) return internal_error(line);
  return exhausted(line + ": free some, or name another disk's folder with HF_HOME");
}

// Whether `path` is still the file that is open: another process may have renamed it.
bool is_same_file(int descriptor, const fs::path& path) {
  struct stat open_one, named_one;
  return ::fstat(descriptor, &open_one) == 0 && ::stat(path.c_str(), &named_one) == 0 &&
         open_one.st_ino == named_one.st_ino && open_one.st_dev == named_one.st_dev;
}

}  // namespace

PartFile::PartFile(fs::path file, std::string identity, int descriptor)
    : file_(std::move(file)), identity_(std::move(identity)), descriptor_(descriptor) {}

PartFile::~PartFile() { ::close(descriptor_); }

Result<std::unique_ptr<PartFile>> PartFile::open(const fs::path& file, const std::string& identity,
                                                 const std::function<bool()>& stopped) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) return file_trouble(file.parent_path(), error.value());
  const std::string part = file.string() + ".part";
  while (!stopped()) {
    const int descriptor = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor < 0) return file_trouble(part, errno);
    std::unique_ptr<PartFile> opened(new PartFile(file, identity, descriptor));
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      if (is_same_file(descriptor, part)) return opened;
      continue;
    }
    if (errno != EWOULDBLOCK) return file_trouble(part, errno);
    std::this_thread::sleep_for(kLockPause);
  }
  return unavailable("interrupted");
}

ByteRanges ranges_on_disk(const fs::path& file, const std::string& identity, int64_t size) {
  struct stat state;
  if (identity.empty()) return {};
  if (::stat((file.string() + ".part").c_str(), &state) != 0) return {};
  std::ifstream ranges(file.string() + ".part.ranges");
  std::string version, text;
  if (!std::getline(ranges, version) || version != identity) return {};
  std::getline(ranges, text);
  return ByteRanges::parse(text, std::min<int64_t>(size, state.st_size));
}

bool is_in_use(const fs::path& part) {
  const int descriptor = ::open(part.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool in_use = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return in_use;
}

ByteRanges PartFile::read_ranges(int64_t size) const {
  return ranges_on_disk(file_, identity_, size);
}

Status PartFile::save_ranges(const ByteRanges& ranges) const {
  const fs::path next = ranges_file().string() + ".new";
  const std::string text = identity_ + '\n' + ranges.text();
  const int descriptor = create_private_file(next);
  if (descriptor < 0) return file_trouble(next, errno);
  const bool written =
      ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(descriptor);
  std::error_code error;
  if (written) fs::rename(next, ranges_file(), error);
  if (written && !error) return ok_status();
  fs::remove(next, error);
  return file_trouble(next, ENOSPC);
}

Status PartFile::write(int64_t offset, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_trouble(part(), written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return ok_status();
}

Result<std::string> PartFile::read(int64_t offset, size_t bytes_max) const {
  std::string bytes(bytes_max, '\0');
  const ssize_t read = ::pread(descriptor_, bytes.data(), bytes.size(), offset);
  if (read <= 0) return file_trouble(part(), read < 0 ? errno : EIO);
  bytes.resize(static_cast<size_t>(read));
  return bytes;
}

Status PartFile::finish(int64_t size) {
  // A part that another version left may have been longer.
  if (::ftruncate(descriptor_, size) != 0 || ::fdatasync(descriptor_) != 0)
    return file_trouble(part(), errno);
  std::error_code error;
  fs::rename(part(), file_, error);
  if (error) return file_trouble(file_, error.value());
  fs::remove(ranges_file(), error);
  return ok_status();
}

void PartFile::discard() {
  std::error_code ignored;
  fs::remove(ranges_file(), ignored);
  fs::remove(part(), ignored);
}

}  // namespace headrace
