// The CUDA twin: CUDA's virtual memory management. The driver's functions are looked up when they
// are first needed, so that a program with this file in it starts on machines without a driver.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "tensor/physical_pages.h"

namespace headrace {
namespace {

struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_range = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
};

template <class Function>
bool look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status);
  function = reinterpret_cast<Function>(found);
  return error == cudaSuccess && status == cudaDriverEntryPointSuccess;
}

Result<const Driver*> find_driver() {
  static Driver driver;
  static const bool found =
      look_up("cuMemGetAllocationGranularity", driver.granularity) &&
      look_up("cuMemCreate", driver.create) && look_up("cuMemRelease", driver.release) &&
      look_up("cuMemAddressReserve", driver.reserve) &&
      look_up("cuMemAddressFree", driver.free_range) && look_up("cuMemMap", driver.map) &&
      look_up("cuMemUnmap", driver.unmap) && look_up("cuMemSetAccess", driver.set_access);
  if (!found) return unsupported("the NVIDIA driver has no virtual memory management");
  return &driver;
}

CUmemAllocationProp properties_of_current_device() {
  int device = 0;
  cudaGetDevice(&device);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

Status failed(const char* what, CUresult result) {
  return exhausted(
      fmt::format("CUDA virtual memory: {} failed (CUresult {})", what, static_cast<int>(result)));
}

class CudaPages final : public PhysicalPages {
 public:
  CudaPages(const Driver& driver, int64_t page_bytes)
      : driver_(driver), page_bytes_(page_bytes), properties_(properties_of_current_device()) {}
  ~CudaPages() override {
    cudaDeviceSynchronize();
    for (const auto& [at, page] : mapped_) {
      driver_.unmap(at, static_cast<size_t>(page_bytes_));
    }
    for (const auto& [range, bytes] : ranges_) driver_.free_range(range, bytes);
    for (CUmemGenericAllocationHandle handle : handles_) driver_.release(handle);
  }

  Status allocate(int32_t page_count) {
    for (int32_t page = 0; page < page_count; ++page) {
      CUmemGenericAllocationHandle handle{};
      const CUresult result =
          driver_.create(&handle, static_cast<size_t>(page_bytes_), &properties_, 0);
      if (result != CUDA_SUCCESS) return failed("cuMemCreate", result);
      handles_.push_back(handle);
    }
    HR_ASSIGN_OR_RETURN(linear_, reserve(page_bytes_ * page_count));
    for (int32_t page = 0; page < page_count; ++page) {
      HR_RETURN_IF_ERROR(map_only(linear_ + page * page_bytes_, page));
    }
    return set_access(linear_, page_bytes_ * page_count);
  }

  std::byte* linear() const override { return linear_; }

  Result<std::byte*> reserve(int64_t bytes) override {
    CUdeviceptr range = 0;
    const auto size = static_cast<size_t>(bytes);
    const CUresult result = driver_.reserve(&range, size, static_cast<size_t>(page_bytes_), 0, 0);
    if (result != CUDA_SUCCESS) return failed("cuMemAddressReserve", result);
    ranges_.emplace_back(range, size);
    return reinterpret_cast<std::byte*>(range);
  }

  Status map(std::byte* at, int32_t page) override {
    const auto found = mapped_.find(address(at));
    if (found != mapped_.end()) {
      if (found->second == page) return ok_status();
      const CUresult result = driver_.unmap(address(at), static_cast<size_t>(page_bytes_));
      if (result != CUDA_SUCCESS) return failed("cuMemUnmap", result);
      mapped_.erase(found);
    }
    HR_RETURN_IF_ERROR(map_only(at, page));
    return set_access(at, page_bytes_);
  }

 private:
  static CUdeviceptr address(std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

  Status map_only(std::byte* at, int32_t page) {
    const CUresult result = driver_.map(address(at), static_cast<size_t>(page_bytes_), 0,
                                        handles_.at(static_cast<size_t>(page)), 0);
    if (result != CUDA_SUCCESS) return failed("cuMemMap", result);
    mapped_[address(at)] = page;
    return ok_status();
  }

  Status set_access(std::byte* at, int64_t bytes) {
    CUmemAccessDesc access{};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result = driver_.set_access(address(at), static_cast<size_t>(bytes), &access, 1);
    return result == CUDA_SUCCESS ? ok_status() : failed("cuMemSetAccess", result);
  }

  const Driver& driver_;
  const int64_t page_bytes_;
  const CUmemAllocationProp properties_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  std::byte* linear_ = nullptr;
  std::vector<std::pair<CUdeviceptr, size_t>> ranges_;
  std::unordered_map<CUdeviceptr, int32_t> mapped_;
};

// The device's context becomes the thread's.
Status make_current(Device& device) {
  HR_ASSIGN_OR_RETURN(const Buffer touched, device.allocate(1));
  return ok_status();
}

}  // namespace

Result<int64_t> cuda_page_granularity(Device& device) {
  HR_RETURN_IF_ERROR(make_current(device));
  HR_ASSIGN_OR_RETURN(const Driver* driver, find_driver());
  const CUmemAllocationProp properties = properties_of_current_device();
  size_t bytes = 0;
  const CUresult result =
      driver->granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return failed("cuMemGetAllocationGranularity", result);
  return static_cast<int64_t>(bytes);
}

Result<std::unique_ptr<PhysicalPages>> create_cuda_pages(Device& device, int64_t page_bytes,
                                                         int32_t page_count) {
  HR_RETURN_IF_ERROR(make_current(device));
  HR_ASSIGN_OR_RETURN(const Driver* driver, find_driver());
  auto pages = std::make_unique<CudaPages>(*driver, page_bytes);
  HR_RETURN_IF_ERROR(pages->allocate(page_count));
  return std::unique_ptr<PhysicalPages>(std::move(pages));
}

}  // namespace headrace
