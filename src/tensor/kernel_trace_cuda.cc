// CUPTI's activity records; the library is opened at run time. Its callbacks carry no object, so
// what they fill is one for the process.
#include <cupti.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "tensor/kernel_trace.h"
#include "tensor/shared_library.h"

namespace headrace {
namespace {

constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kBufferAlignment = 8;

struct CuptiApi {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiGetResultString) result_string;
};

constexpr std::array kCuptiPlaces = {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
                                     "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                                     "libcupti.so.12"};

Result<CuptiApi> open_cupti() {
  const SharedLibrary library(kCuptiPlaces);
  CuptiApi api{};
  if (!library.is_open()) {
    return unavailable(
        "CUPTI is not there (libcupti.so.13): it comes with the CUDA toolkit; set LD_LIBRARY_PATH "
        "to its folder");
  }
  const bool complete = library.find("cuptiActivityRegisterCallbacks", api.register_callbacks) &&
                        library.find("cuptiActivityEnable", api.enable) &&
                        library.find("cuptiActivityDisable", api.disable) &&
                        library.find("cuptiActivityFlushAll", api.flush) &&
                        library.find("cuptiActivityGetNextRecord", api.next_record) &&
                        library.find("cuptiGetResultString", api.result_string);
  if (!complete) return unavailable("CUPTI lacks a function that is needed");
  return api;
}

// What the callbacks know.
struct Records {
  CuptiApi api;
  std::mutex mutex;
  std::vector<KernelRun> runs;
};
Records& records() {
  static Records* const all = new Records;  // CUPTI's own thread may outlive main()
  return *all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* records_max) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *records_max = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
  Records& all = records();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (all.api.next_record(buffer, used, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    all.runs.push_back({kernel->name == nullptr ? "?" : kernel->name,
                        static_cast<int64_t>(kernel->start), static_cast<int64_t>(kernel->end),
                        kernel->deviceId});
  }
  std::free(buffer);
}

class CuptiTrace final : public KernelTrace {
 public:
  ~CuptiTrace() override { (void)records().api.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); }

  Result<std::vector<KernelRun>> take() override {
    Records& all = records();
    HR_RETURN_IF_ERROR(check(all.api.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush"));
    const std::lock_guard lock(all.mutex);
    std::vector<KernelRun> runs = std::exchange(all.runs, {});
    uint32_t first = std::numeric_limits<uint32_t>::max();
    for (const KernelRun& run : runs) first = std::min(first, run.gpu);
    std::erase_if(runs, [&](const KernelRun& run) { return run.gpu != first; });
    std::sort(runs.begin(), runs.end(),
              [](const KernelRun& a, const KernelRun& b) { return a.start_ns < b.start_ns; });
    return runs;
  }

  static Status check(CUptiResult result, const char* what) {
    if (result == CUPTI_SUCCESS) return ok_status();
    const char* text = "";
    records().api.result_string(result, &text);
    return unavailable(fmt::format("CUPTI cannot {} a trace: {}", what, text));
  }
};

}  // namespace

Result<std::unique_ptr<KernelTrace>> KernelTrace::start() {
  Records& all = records();
  HR_ASSIGN_OR_RETURN(all.api, open_cupti());
  all.runs.clear();
  HR_RETURN_IF_ERROR(
      CuptiTrace::check(all.api.register_callbacks(give_buffer, take_buffer), "begin"));
  HR_RETURN_IF_ERROR(
      CuptiTrace::check(all.api.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "begin"));
  return std::unique_ptr<KernelTrace>(std::make_unique<CuptiTrace>());
}

}  // namespace headrace
