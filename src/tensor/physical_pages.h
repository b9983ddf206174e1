// PhysicalPages: memory in pages of equal size that can be seen at several addresses at once: the
// ground of a cache whose sequences are contiguous to kernels and share pages all the same. On the
// CPU a memory file whose pages are mapped (memfd_create, mmap); on CUDA allocation handles
// (cuMemCreate, cuMemMap), as vAttention does (Prabhu et al., ASPLOS 2025).
//
// Used by one thread. Addresses live as long as this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

class PhysicalPages {
 public:
  // Sizes of pages are multiples of this: 4 KiB on the CPU, 2 MiB on GPUs.
  static Result<int64_t> granularity(Device& device);
  // kInvalidArgument where page_bytes is no multiple; kExhausted where there is not so much memory.
  static Result<std::unique_ptr<PhysicalPages>> create(Device& device, int64_t page_bytes,
                                                       int32_t page_count);
  virtual ~PhysicalPages() = default;

  // All pages side by side, at addresses of their own.
  virtual std::byte* linear() const = 0;
  // Addresses without memory behind them. kExhausted: none are left.
  virtual Result<std::byte*> reserve(int64_t bytes) = 0;
  // From now on `at` shows the page, whatever it showed before. REQUIRES: `at` is reserved, a
  // multiple of page_bytes from its range's start, and no kernel that may run uses it
  virtual Status map(std::byte* at, int32_t page) = 0;
};

// The CUDA twin (physical_pages_cuda.cc; device_no_cuda.cc where the build has none).
Result<int64_t> cuda_page_granularity(Device& device);
Result<std::unique_ptr<PhysicalPages>> create_cuda_pages(Device& device, int64_t page_bytes,
                                                         int32_t page_count);

}  // namespace headrace
