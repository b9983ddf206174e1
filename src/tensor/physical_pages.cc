#include "tensor/physical_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {
namespace {

Status failed(const char* what, int64_t bytes) {
  return exhausted(fmt::format("{} of {} MiB: {}{}", what, bytes >> 20, std::strerror(errno),
                               errno == ENOMEM ? " (or vm.max_map_count is too low)" : ""));
}

class CpuPages final : public PhysicalPages {
 public:
  static Result<std::unique_ptr<PhysicalPages>> create(int64_t page_bytes, int32_t page_count) {
    auto pages = std::unique_ptr<CpuPages>(new CpuPages(page_bytes, page_bytes * page_count));
    pages->file_ = ::memfd_create("headrace-kv", MFD_CLOEXEC);
    if (pages->file_ < 0 || ::ftruncate(pages->file_, pages->bytes_) != 0) {
      return failed("a memory file", pages->bytes_);
    }
    void* data = ::mmap(nullptr, static_cast<size_t>(pages->bytes_), PROT_READ | PROT_WRITE,
                        MAP_SHARED, pages->file_, 0);
    if (data == MAP_FAILED) return failed("a mapping", pages->bytes_);
    pages->linear_ = static_cast<std::byte*>(data);
    return std::unique_ptr<PhysicalPages>(std::move(pages));
  }
  ~CpuPages() override {
    for (const auto& [data, bytes] : ranges_) ::munmap(data, static_cast<size_t>(bytes));
    if (linear_ != nullptr) ::munmap(linear_, static_cast<size_t>(bytes_));
    if (file_ >= 0) ::close(file_);
  }

  std::byte* linear() const override { return linear_; }

  Result<std::byte*> reserve(int64_t bytes) override {
    void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return failed("a range of addresses", bytes);
    ranges_.emplace_back(data, bytes);
    return static_cast<std::byte*>(data);
  }

  // Its page tables are filled at once: the step that uses it takes no fault.
  Status map(std::byte* at, int32_t page) override {
    CHECK(page >= 0 && page * page_bytes_ < bytes_);
    void* data = ::mmap(at, static_cast<size_t>(page_bytes_), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED | MAP_POPULATE, file_, page * page_bytes_);
    return data == MAP_FAILED ? failed("a page", page_bytes_) : ok_status();
  }

 private:
  CpuPages(int64_t page_bytes, int64_t bytes) : page_bytes_(page_bytes), bytes_(bytes) {}

  const int64_t page_bytes_, bytes_;
  int file_ = -1;
  std::byte* linear_ = nullptr;
  std::vector<std::pair<void*, int64_t>> ranges_;
};

}  // namespace

Result<int64_t> PhysicalPages::granularity(Device& device) {
  if (device.kind() == DeviceKind::kCuda) return cuda_page_granularity(device);
  return static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
}

Result<std::unique_ptr<PhysicalPages>> PhysicalPages::create(Device& device, int64_t page_bytes,
                                                             int32_t page_count) {
  HR_ASSIGN_OR_RETURN(const int64_t unit, granularity(device));
  if (page_bytes <= 0 || page_bytes % unit != 0) {
    return invalid_argument(fmt::format(
        "a page of {} bytes cannot be mapped: it must be a multiple of {}", page_bytes, unit));
  }
  if (device.kind() == DeviceKind::kCuda) return create_cuda_pages(device, page_bytes, page_count);
  return CpuPages::create(page_bytes, page_count);
}

}  // namespace headrace
