// The CUDA twin. The CUDA runtime is linked in and looks for the driver when it is first called, so
// a program with this file in it starts on machines without one.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "base/first_error.h"
#include "tensor/allocation_count.h"
#include "tensor/cuda_fault.h"
#include "tensor/device.h"
#include "tensor/gemm_library.h"
#include "tensor/gpu_kind.h"

namespace headrace {
namespace {

// Remembers the first error of a stream until somebody asks.
class CudaErrors {
 public:
  void note(cudaError_t error) {
    if (error != cudaSuccess) add(cuda_fault(error));
  }
  void add(Status error) { first_.add(std::move(error)); }
  Status status() const { return first_.first(); }

 private:
  FirstError first_;
};

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, unsigned flags, std::shared_ptr<CudaErrors> errors)
      : errors_(std::move(errors)) {
    errors_->note(cudaSetDevice(device));
    errors_->note(cudaEventCreateWithFlags(&event_, flags));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  // An error counts as complete: it shows in Stream::status().
  bool complete() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    errors_->note(state);
    return true;
  }
  void wait() const override { errors_->note(cudaEventSynchronize(event_)); }
  double seconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    errors_->note(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_));
    return static_cast<double>(milliseconds) * 1e-3;
  }
  cudaEvent_t native() const { return event_; }

 private:
  std::shared_ptr<CudaErrors> errors_;
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t native() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device) : device_(device) {
    errors_->note(cudaSetDevice(device_));
    errors_->note(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void fill_zero(std::byte* to, int64_t bytes) override {
    if (bytes > 0) errors_->note(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_));
  }
  void call(std::function<void()> work) override {
    auto* held = new std::function<void()>(std::move(work));
    const cudaError_t error = cudaLaunchHostFunc(
        stream_,
        [](void* data) {
          const std::unique_ptr<std::function<void()>> owned(
              static_cast<std::function<void()>*>(data));
          (*owned)();
        },
        held);
    if (error != cudaSuccess) delete held;
    errors_->note(error);
  }
  std::unique_ptr<Event> record() override {
    auto event = std::make_unique<CudaEvent>(device_, cudaEventDisableTiming, errors_);
    errors_->note(cudaEventRecord(event->native(), stream_));
    return event;
  }
  std::unique_ptr<Event> create_timer() override {
    return std::make_unique<CudaEvent>(device_, cudaEventDefault, errors_);
  }
  void record(Event& timer) override {
    // In a recording the event is a node of its graph, which each replay records anew.
    const unsigned flags = capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault;
    errors_->note(
        cudaEventRecordWithFlags(static_cast<CudaEvent&>(timer).native(), stream_, flags));
  }
  void wait(const Event& event) override {
    errors_->note(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0));
  }
  Status synchronize() override {
    errors_->note(cudaStreamSynchronize(stream_));
    return status();
  }
  Status status() override {
    errors_->note(cudaGetLastError());  // of a kernel launch
    return errors_->status();
  }
  void fail(Status error) override { errors_->add(std::move(error)); }
  // Thread-local: what other threads do meanwhile (an allocation, say) does not break the
  // recording.
  Status begin_capture() override {
    const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    capturing_ = error == cudaSuccess;
    return error == cudaSuccess ? ok_status()
                                : internal_error("CUDA graph: " + cuda_error_text(error));
  }
  Result<std::unique_ptr<Graph>> end_capture() override {
    capturing_ = false;
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t graph = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream_, &recorded);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&graph, recorded, 0);
    // Not at its first launch, which on another stream would not be behind the copy.
    if (error == cudaSuccess) error = cudaGraphUpload(graph, stream_);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    if (error != cudaSuccess) {
      cudaGetLastError();  // nothing ran; the stream goes on
      return internal_error("CUDA graph: " + cuda_error_text(error));
    }
    auto made = std::make_unique<CudaGraph>(graph);
    HR_RETURN_IF_ERROR(errors_->status());  // it lacks what did not start
    return std::unique_ptr<Graph>(std::move(made));
  }
  void launch(const Graph& graph) override {
    errors_->note(cudaGraphLaunch(static_cast<const CudaGraph&>(graph).native(), stream_));
  }
  void* native() const override { return stream_; }

 private:
  void copy(std::byte* to, const std::byte* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) {
      errors_->note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_));
    }
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  bool capturing_ = false;
  std::shared_ptr<CudaErrors> errors_ = std::make_shared<CudaErrors>();
};

// Page-locked host memory. Locking costs 0.45 ms a MiB in pages of 4 KiB and a tenth of that in
// pages of 2 MiB, which large ranges get where the kernel has them.
class LockedMemory {
 public:
  static cudaError_t take(int64_t bytes, std::byte*& data) {
    void* memory = nullptr;
    if (bytes < kHugePage) {
      const cudaError_t error =
          cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
      data = static_cast<std::byte*>(memory);
      return error;
    }
    const size_t size = mapped_bytes(bytes);
    memory = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return cudaErrorMemoryAllocation;
    data = trim(static_cast<std::byte*>(memory), size);
    ::madvise(data, size, MADV_HUGEPAGE);
    const cudaError_t error = cudaHostRegister(data, size, cudaHostRegisterPortable);
    if (error != cudaSuccess) ::munmap(data, size);
    return error;
  }
  static void give_back(std::byte* data, int64_t bytes) {
    if (bytes < kHugePage) {
      cudaFreeHost(data);
      return;
    }
    cudaHostUnregister(data);
    ::munmap(data, mapped_bytes(bytes));
  }

 private:
  static constexpr int64_t kHugePage = 2 << 20;

  static size_t mapped_bytes(int64_t bytes) {
    return static_cast<size_t>((bytes + kHugePage - 1) / kHugePage * kHugePage);
  }
  // `size` bytes from a multiple of kHugePage; the rest of the mapping goes back.
  static std::byte* trim(std::byte* memory, size_t size) {
    const auto misfit = reinterpret_cast<uintptr_t>(memory) % kHugePage;
    const size_t before = misfit == 0 ? 0 : kHugePage - misfit;
    if (before > 0) ::munmap(memory, before);
    if (before < kHugePage) ::munmap(memory + before + size, kHugePage - before);
    return memory + before;
  }
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties, int thread_count, bool batch_invariant)
      : index_(index), pool_(thread_count) {
    traits_.kind = DeviceKind::kCuda;
    traits_.name = properties.name;
    traits_.cpu = CpuFeatures::detect();
    traits_.compute_capability = properties.major * 10 + properties.minor;
    traits_.sm_count = properties.multiProcessorCount;
    traits_.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    traits_.index = index;
    traits_.batch_invariant = batch_invariant;
  }

  const DeviceTraits& traits() const override { return traits_; }

  Result<Buffer> allocate(int64_t bytes) override {
    CHECK(bytes >= 0);
    void* data = nullptr;
    cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess)
      error = cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (error != cudaSuccess) {
      cudaGetLastError();  // running out of memory is no fault of the device
      return exhausted(fmt::format("cannot allocate {} MiB on {} ({} MiB free): {}", bytes >> 20,
                                   traits_.name, free_bytes() >> 20, cuda_error_text(error)));
    }
    ++allocation_count();
    return Buffer(this, static_cast<std::byte*>(data), bytes);
  }

  Result<Buffer> allocate_host(int64_t bytes) override {
    CHECK(bytes >= 0);
    std::byte* data = nullptr;
    cudaError_t error = cudaSetDevice(index_);
    if (error == cudaSuccess) error = LockedMemory::take(bytes, data);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return exhausted(fmt::format("cannot allocate {} MiB of page-locked host memory: {}",
                                   bytes >> 20, cuda_error_text(error)));
    }
    ++allocation_count();
    return Buffer(this, data, bytes, MemoryKind::kHost);
  }

  std::unique_ptr<Stream> create_stream() override { return std::make_unique<CudaStream>(index_); }

  void make_current() const override { cudaSetDevice(index_); }

  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    if (cudaSetDevice(index_) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess)
      return 0;
    return static_cast<int64_t>(free);
  }

  ThreadPool& pool() override { return pool_; }

  Result<GemmLibrary*> gemm_library() override {
    const std::lock_guard lock(gemm_mutex_);
    if (gemm_ == nullptr) {
      cudaSetDevice(index_);
      HR_ASSIGN_OR_RETURN(gemm_, GemmLibrary::open());
    }
    return gemm_.get();
  }

 private:
  void release(std::byte* data, int64_t bytes, MemoryKind kind) override {
    cudaSetDevice(index_);
    if (kind == MemoryKind::kHost) {
      LockedMemory::give_back(data, bytes);
    } else {
      cudaFree(data);
    }
  }

  int index_;
  DeviceTraits traits_;
  ThreadPool pool_;
  std::mutex gemm_mutex_;
  std::unique_ptr<GemmLibrary> gemm_;
};

Status no_device(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver) {
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    return unavailable(
        fmt::format("no NVIDIA driver, or one too old for CUDA {}.{}: install or update it, or use "
                    "--device cpu",
                    runtime / 1000, runtime % 1000 / 10));
  }
  if (error == cudaErrorNoDevice) return not_found("no CUDA GPU in this machine: use --device cpu");
  return unavailable("CUDA does not start: " + cuda_error_text(error));
}

}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(int index, int thread_count,
                                                   bool batch_invariant) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return no_device(error);
  }
  if (index < 0 || index >= count) {
    return not_found(
        fmt::format("CUDA device {} does not exist: this machine has {}", index, count));
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    return no_device(error);
  }
  HR_RETURN_IF_ERROR(
      check_gpu_kind(index, properties.name, properties.major * 10 + properties.minor));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(
      index, properties,
      place_threads(CpuTopology::read(), thread_count, CpuBinding::kNone).thread_count,
      batch_invariant));
}

bool built_with_cuda() { return true; }

bool cuda_device_present() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

}  // namespace headrace
