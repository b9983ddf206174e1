// The CUDA twin. The CUDA runtime is linked in and looks for the driver when it is first called, so
// a program with this file in it starts on machines without one.
#include <cuda_runtime_api.h>

#include <algorithm>

#include <fmt/format.h>

#include "tensor/device.h"

namespace headrace {
namespace {

std::string describe(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

// Remembers the first error of a stream until somebody asks.
class CudaErrors {
 public:
  void note(cudaError_t error) {
    if (first_ == cudaSuccess) first_ = error;
  }
  Status status() const {
    if (first_ == cudaSuccess) return ok_status();
    return internal_error("CUDA: " + describe(first_));
  }

 private:
  cudaError_t first_ = cudaSuccess;
};

class CudaEvent final : public Event {
 public:
  CudaEvent(int device, cudaStream_t stream, CudaErrors& errors) {
    errors.note(cudaSetDevice(device));
    errors.note(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    errors.note(cudaEventRecord(event_, stream));
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  // An error counts as complete: it shows in Stream::synchronize().
  bool complete() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  void wait() const override { cudaEventSynchronize(event_); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device) : device_(device) {
    errors_.note(cudaSetDevice(device_));
    errors_.note(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
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
    if (bytes > 0) errors_.note(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_));
  }
  std::unique_ptr<Event> record() override {
    return std::make_unique<CudaEvent>(device_, stream_, errors_);
  }
  Status synchronize() override {
    errors_.note(cudaStreamSynchronize(stream_));
    errors_.note(cudaGetLastError());  // of a kernel launch
    return errors_.status();
  }
  void* native() const override { return stream_; }

 private:
  void copy(std::byte* to, const std::byte* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) {
      errors_.note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_));
    }
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  CudaErrors errors_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const cudaDeviceProp& properties) : index_(index) {
    traits_.kind = DeviceKind::kCuda;
    traits_.name = properties.name;
    traits_.cpu = CpuFeatures::detect();
    traits_.compute_capability = properties.major * 10 + properties.minor;
    traits_.sm_count = properties.multiProcessorCount;
    traits_.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
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
                                   traits_.name, free_bytes() >> 20, describe(error)));
    }
    return Buffer(this, static_cast<std::byte*>(data), bytes);
  }

  std::unique_ptr<Stream> create_stream() override { return std::make_unique<CudaStream>(index_); }

  int64_t free_bytes() const override {
    size_t free = 0, total = 0;
    if (cudaSetDevice(index_) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess)
      return 0;
    return static_cast<int64_t>(free);
  }

  ThreadPool& pool() override {
    CHECK_MSG(false, "a CUDA device has no thread pool");
    __builtin_unreachable();
  }

 private:
  void release(std::byte* data, int64_t) override {
    cudaSetDevice(index_);
    cudaFree(data);
  }

  int index_;
  DeviceTraits traits_;
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
  return unavailable("CUDA does not start: " + describe(error));
}

}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(int index) {
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
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(index, properties));
}

bool built_with_cuda() { return true; }

}  // namespace headrace
