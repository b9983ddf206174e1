// KvTiers: the memory of the tiers below the pool. The host's is page-locked where the device is a
// GPU, so that copies run beside its kernels; the disk's is a file that is mapped, which the kernel
// writes back when it likes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/tier_pool.h"
#include "tensor/device.h"

namespace headrace {

struct KvTierOptions {
  int32_t host_pages = 0;
  int32_t disk_pages = 0;
  std::string disk_path;  // the file, made at start and removed at the end
};

class KvTiers {
 public:
  // kExhausted naming the flag where there is no memory for the host's pages. All of the disk's
  // file is allocated now, so that a full disk shows here and not in a step: then there is no disk
  // tier, and the log says why.
  static Result<std::shared_ptr<KvTiers>> create(Device& device, int64_t page_bytes,
                                                 const KvTierOptions& options);

  // Copies pages in their order on `stream`, which all moves share. `pool` is page 0 of the pool.
  void move_pages(Stream& stream, std::byte* pool, const std::vector<PageMove>& moves);

  // A page's bytes. REQUIRES: no move is on its way
  std::span<const std::byte> page(TierPage place) const;

  int32_t host_pages() const { return static_cast<int32_t>(host_.size() / page_bytes_); }
  int32_t disk_pages() const { return disk_pages_; }  // 0: none
  int64_t page_bytes() const { return page_bytes_; }

 private:
  class DiskFile;
  explicit KvTiers(int64_t page_bytes) : page_bytes_(page_bytes) {}
  void move_page(Stream& stream, std::byte* pool, const PageMove& move);
  std::byte* disk_page(int32_t page) const;

  int64_t page_bytes_;
  Buffer host_;
  Buffer staging_;  // a page between disk and a GPU
  std::shared_ptr<DiskFile> disk_;
  int32_t disk_pages_ = 0;
};

// Seconds to copy a page from the host's memory to the device's, measured now.
Result<double> measure_page_load(Device& device, int64_t page_bytes);

}  // namespace headrace
