#include "weights/packed_cache.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'H', 'R', 'P', 'A', 'C', 'K', '0', '2'};
constexpr std::string_view kSuffix = ".packed";
constexpr uint64_t kHeadUnit = uint64_t{2} << 20;  // a huge page: the payload begins with one
constexpr uint64_t kSumBytes = uint64_t{2} << 20;  // of the payload, under one checksum
constexpr uint64_t kWriteBytes = uint64_t{8} << 20;
constexpr uint64_t kPartAlignment = 64;
constexpr uint64_t kPiecesMax = 1 << 17;  // 61 layers of 384 experts have 70,000 matrices
constexpr uint64_t kSumsMax = 1 << 17;    // 256 GiB
// A checked file of up to so many bytes leaves the process's memory until it is used: the peak of
// a small model is then not the end of its load. Mapping it again costs 0.5 ms for 128 MiB.
constexpr uint64_t kUnmappedBytes = uint64_t{256} << 20;

uint64_t sum_count(uint64_t bytes) { return (bytes + kSumBytes - 1) / kSumBytes; }

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Status file_error(const std::string& path) {
  return unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
}

// All of `pieces`, one after the other. False: errno says why.
bool write_all(int fd, std::vector<iovec> pieces, uint64_t offset) {
  for (size_t first = 0; first < pieces.size();) {
    const auto count = static_cast<int>(std::min<size_t>(pieces.size() - first, IOV_MAX));
    const ssize_t wrote = ::pwritev(fd, pieces.data() + first, count, static_cast<off_t>(offset));
    if (wrote <= 0) return false;
    offset += static_cast<uint64_t>(wrote);
    auto left = static_cast<size_t>(wrote);
    while (first < pieces.size() && left >= pieces[first].iov_len) left -= pieces[first++].iov_len;
    if (left == 0) continue;
    pieces[first].iov_base = static_cast<std::byte*>(pieces[first].iov_base) + left;
    pieces[first].iov_len -= left;
  }
  return true;
}

iovec piece_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

struct CachedFile {
  fs::path path;
  fs::file_time_type used;
  uint64_t bytes;
};

// What a process left that was ended while it wrote: "MODEL-KEY.packed.PID", untouched for an hour.
bool is_left_over(const fs::directory_entry& entry) {
  std::error_code error;
  const auto age = fs::file_time_type::clock::now() - entry.last_write_time(error);
  return entry.path().stem().extension() == kSuffix && !error && age > std::chrono::hours(1);
}

// Removes what others left, and the files that were used longest ago, until the rest has at most
// `bytes_max`.
void shrink_folder(const fs::path& folder, uint64_t bytes_max) {
  std::error_code error;
  std::vector<CachedFile> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_left_over(entry)) fs::remove(entry.path(), error);
    if (entry.path().extension() != kSuffix) continue;
    files.push_back({entry.path(), entry.last_write_time(error), entry.file_size(error)});
  }
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used > b.used; });
  uint64_t kept = 0;
  for (const CachedFile& file : files) {
    kept += file.bytes;
    if (kept > bytes_max) fs::remove(file.path, error);
  }
}

}  // namespace

struct PackedCache::Header {
  char magic[8];
  uint64_t piece_count;
  uint64_t payload_bytes;
  uint64_t sum;  // of pieces and of the payload's checksums, which follow
};

// Bytes in front of the payload.
uint64_t PackedCache::payload_offset(uint64_t piece_count, uint64_t payload_bytes) {
  const uint64_t bytes =
      sizeof(Header) + piece_count * sizeof(Piece) + sum_count(payload_bytes) * sizeof(uint64_t);
  return (bytes + kHeadUnit - 1) / kHeadUnit * kHeadUnit;
}

struct PackedCache::Contents {
  std::vector<Piece> pieces;
  std::vector<uint64_t> sums;
  std::span<const std::byte> payload;
};

std::unique_ptr<PackedCache> PackedCache::open(const std::string& folder, std::string_view model,
                                               std::string_view key, ThreadPool& pool) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(key));
  const std::string name = fmt::format("{}-{:016x}{}", model, checksum64(bytes), kSuffix);
  std::unique_ptr<PackedCache> cache(new PackedCache(fs::path(folder) / name));
  cache->map(pool);
  return cache;
}

// Counts and sizes are held against the file before anything is read by them.
std::optional<PackedCache::Contents> PackedCache::read_contents(
    std::span<const std::byte> file) const {
  Header header;
  if (file.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
  if (header.piece_count > kPiecesMax || header.payload_bytes > file.size()) return std::nullopt;
  const uint64_t offset = payload_offset(header.piece_count, header.payload_bytes);
  if (offset > file.size() || header.payload_bytes != file.size() - offset) return std::nullopt;
  const uint64_t sums = sum_count(header.payload_bytes);
  const uint64_t pieces_bytes = header.piece_count * sizeof(Piece);
  if (sums > kSumsMax) return std::nullopt;
  Contents contents{.pieces = std::vector<Piece>(header.piece_count),
                    .sums = std::vector<uint64_t>(sums),
                    .payload = file.subspan(offset)};
  std::memcpy(contents.pieces.data(), file.data() + sizeof(Header), pieces_bytes);
  std::memcpy(contents.sums.data(), file.data() + sizeof(Header) + pieces_bytes, sums * 8);
  const uint64_t sum = checksum64(bytes_of(contents.sums), checksum64(bytes_of(contents.pieces)));
  if (sum != header.sum) return std::nullopt;
  for (const Piece& piece : contents.pieces) {
    const bool inside = piece.offset <= header.payload_bytes &&
                        piece.size <= header.payload_bytes - piece.offset &&
                        piece.offset % kPartAlignment == 0;
    if (!inside) return std::nullopt;
  }
  return contents;
}

void PackedCache::map(ThreadPool& pool) {
  auto mapping = MappedFile::open(path_);
  if (!mapping.ok()) return;
  (*mapping)->use_huge_pages();
  std::optional<Contents> contents = read_contents((*mapping)->bytes());
  if (!contents) return;
  const std::span<const std::byte> payload = contents->payload;
  std::atomic<bool> right = true;
  pool.parallel_for(static_cast<int64_t>(contents->sums.size()), 1,
                    [&](int64_t first, int64_t last) {
                      for (int64_t i = first; i < last; ++i) {
                        const uint64_t begin = static_cast<uint64_t>(i) * kSumBytes;
                        const uint64_t size = std::min(kSumBytes, payload.size() - begin);
                        const uint64_t sum = checksum64(payload.subspan(begin, size));
                        if (sum != contents->sums[static_cast<size_t>(i)]) right = false;
                      }
                    });
  if (!right) return;
  // Used now: shrink_folder() goes by it.
  ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
  mapping_ = std::move(mapping).value();
  if (payload.size() <= kUnmappedBytes) mapping_->release(mapping_->bytes());
  payload_ = payload;
  pieces_ = std::move(contents->pieces);
  for (const Piece& piece : pieces_) {
    found_.try_emplace(std::string_view(piece.name, ::strnlen(piece.name, sizeof(piece.name))),
                       &piece);
  }
  bytes_ = payload.size();
}

std::optional<std::span<const std::byte>> PackedCache::find(std::string_view name) const {
  const auto found = found_.find(name);
  if (found == found_.end()) return std::nullopt;
  return payload_.subspan(found->second->offset, found->second->size);
}

void PackedCache::add(std::string_view name, std::span<const std::byte> bytes) {
  CHECK(!hit() && bytes.size() % kPartAlignment == 0);
  if (name.size() > sizeof(Piece::name) || pieces_.size() == kPiecesMax) return;
  Piece piece{.name = {}, .offset = bytes_, .size = bytes.size()};
  std::copy(name.begin(), name.end(), piece.name);
  pieces_.push_back(piece);
  memory_.push_back(bytes);
  bytes_ += bytes.size();
}

Status PackedCache::write_payload(int fd, std::vector<uint64_t>& sums) const {
  const uint64_t offset = payload_offset(pieces_.size(), bytes_);
  std::vector<iovec> pending;
  uint64_t pending_bytes = 0, written = 0;
  const auto flush = [&] {
    const bool ok = write_all(fd, std::exchange(pending, {}), offset + written);
    written += std::exchange(pending_bytes, 0);
    return ok;
  };
  for (std::span<const std::byte> piece : memory_) {
    while (!piece.empty()) {
      const size_t size = std::min<size_t>(piece.size(), kWriteBytes - pending_bytes);
      pending.push_back(piece_of(piece.first(size)));
      pending_bytes += size;
      piece = piece.subspan(size);
      if (pending_bytes == kWriteBytes && !flush()) return file_error(path_);
    }
  }
  if (!flush()) return file_error(path_);
  // Read again from the file: what is summed is what will be mapped.
  HR_ASSIGN_OR_RETURN(const auto mapping, MappedFile::open(fmt::format("/proc/self/fd/{}", fd)));
  const auto payload = mapping->bytes().subspan(offset);
  for (size_t i = 0; i < sums.size(); ++i) {
    const uint64_t begin = i * kSumBytes;
    const auto part = payload.subspan(begin, std::min(kSumBytes, payload.size() - begin));
    sums[i] = checksum64(part);
    mapping->release(part);
  }
  return ok_status();
}

Status PackedCache::write(int64_t folder_bytes_max) {
  CHECK(!hit());
  if (sum_count(bytes_) > kSumsMax) {
    return unsupported(fmt::format("{}: {} bytes are too many for it", path_, bytes_));
  }
  const fs::path folder = fs::path(path_).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return unavailable(fmt::format("{}: {}", folder.string(), error.message()));
  const std::string beside = fmt::format("{}.{}", path_, ::getpid());
  const int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return file_error(beside);
  std::vector<uint64_t> sums(sum_count(bytes_));
  Status status = write_payload(fd, sums);
  Header header{.magic = {}, .piece_count = pieces_.size(), .payload_bytes = bytes_, .sum = 0};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.sum = checksum64(bytes_of(sums), checksum64(bytes_of(pieces_)));
  const std::vector<iovec> head = {piece_of(std::as_bytes(std::span(&header, 1))),
                                   piece_of(bytes_of(pieces_)), piece_of(bytes_of(sums))};
  if (status.ok() && !write_all(fd, head, 0)) status = file_error(beside);
  ::close(fd);
  if (status.ok() && ::rename(beside.c_str(), path_.c_str()) != 0) status = file_error(path_);
  if (!status.ok()) ::unlink(beside.c_str());
  if (status.ok()) shrink_folder(folder, static_cast<uint64_t>(folder_bytes_max));
  return status;
}

}  // namespace headrace
