#include "engine/kv_tiers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"

namespace headrace {

// A file of pages, mapped to be read and written. Unlinked at once: it goes with the process,
// however that ends.
class KvTiers::DiskFile {
 public:
  static Result<std::shared_ptr<DiskFile>> create(const std::string& path, int64_t bytes) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return failed(path, "cannot be made", errno);
    ::unlink(path.c_str());
    const int full = ::posix_fallocate(file, 0, bytes);
    void* data = MAP_FAILED;
    if (full == 0)
      data =
          ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const int error = full != 0 ? full : errno;
    ::close(file);
    if (data == MAP_FAILED) {
      return failed(path, fmt::format("cannot hold {} MiB", bytes >> 20), error);
    }
    return std::make_shared<DiskFile>(static_cast<std::byte*>(data), bytes);
  }
  DiskFile(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~DiskFile() { ::munmap(data_, static_cast<size_t>(bytes_)); }
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  std::byte* data() const { return data_; }

 private:
  static Status failed(const std::string& path, const std::string& what, int error) {
    return exhausted(fmt::format("--kv-disk-path: {} {}: {}", path, what, std::strerror(error)));
  }
  std::byte* data_;
  int64_t bytes_;
};

Result<std::shared_ptr<KvTiers>> KvTiers::create(Device& device, int64_t page_bytes,
                                                 const KvTierOptions& options) {
  std::shared_ptr<KvTiers> tiers(new KvTiers(page_bytes));
  auto host = device.allocate_host(page_bytes * options.host_pages);
  if (!host.ok()) return host.status().with_context("--kv-offloading-size");
  tiers->host_ = std::move(host).value();
  if (options.disk_pages == 0) return tiers;
  auto disk = DiskFile::create(options.disk_path, page_bytes * options.disk_pages);
  if (!disk.ok()) {
    log_warning("keys and values stay in memory: {}", disk.status().message());
    return tiers;
  }
  tiers->disk_ = std::move(disk).value();
  tiers->disk_pages_ = options.disk_pages;
  HR_ASSIGN_OR_RETURN(tiers->staging_, device.allocate_host(page_bytes));
  return tiers;
}

std::byte* KvTiers::disk_page(int32_t page) const { return disk_->data() + page * page_bytes_; }

std::span<const std::byte> KvTiers::page(TierPage place) const {
  const std::byte* data =
      place.tier == kHostTier ? host_.data() + place.page * page_bytes_ : disk_page(place.page);
  return {data, static_cast<size_t>(page_bytes_)};
}

void KvTiers::move_pages(Stream& stream, std::byte* pool, const std::vector<PageMove>& moves) {
  for (const PageMove& move : moves) move_page(stream, pool, move);
}

void KvTiers::move_page(Stream& stream, std::byte* pool, const PageMove& move) {
  const auto host = [&](TierPage place) { return host_.data() + place.page * page_bytes_; };
  const auto copy_on_host = [&](std::byte* to, const std::byte* from) {
    stream.call([to, from, bytes = page_bytes_, disk = disk_] {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    });
  };
  std::byte* in_pool =
      pool + (move.from.tier == kPoolTier ? move.from.page : move.to.page) * page_bytes_;
  if (move.from.tier == kPoolTier) {
    CHECK(move.to.tier == kHostTier);
    stream.copy_out(host(move.to), in_pool, page_bytes_);
  } else if (move.to.tier == kDiskTier) {
    CHECK(move.from.tier == kHostTier);
    copy_on_host(disk_page(move.to.page), host(move.from));
  } else if (move.from.tier == kHostTier) {
    stream.copy_in(in_pool, host(move.from), page_bytes_);
  } else {
    copy_on_host(staging_.data(), disk_page(move.from.page));
    stream.copy_in(in_pool, staging_.data(), page_bytes_);
  }
}

// Pages are touched before they are timed; the best of three counts, of 64 MiB or 64 pages.
Result<double> measure_page_load(Device& device, int64_t page_bytes) {
  const int64_t pages = std::clamp<int64_t>((64 << 20) / page_bytes, 1, 64);
  HR_ASSIGN_OR_RETURN(Buffer host, device.allocate_host(pages * page_bytes));
  HR_ASSIGN_OR_RETURN(Buffer pool, device.allocate(pages * page_bytes));
  std::memset(host.data(), 1, static_cast<size_t>(host.size()));
  const auto stream = device.create_stream();
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t page = 0; page < pages; ++page) {
      stream->copy_in(pool.data() + page * page_bytes, host.data() + page * page_bytes, page_bytes);
    }
    HR_RETURN_IF_ERROR(stream->synchronize());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (repeat == 1 || (repeat > 1 && seconds.count() < best)) best = seconds.count();
  }
  return best / static_cast<double>(pages);
}

}  // namespace headrace
