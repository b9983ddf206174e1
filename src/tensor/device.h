// Device, Stream, Event, Buffer: where memory lives and in what order work runs on it.
//
// Each has a CPU and a CUDA twin (device_cpu.cc, device_cuda.cc; device_no_cuda.cc where the build
// has no CUDA). A device is made once at start and outlives everything that came from it. The null
// device (device_null.cc) computes nothing: what a GPU's host does can be run and timed on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "tensor/cpu_features.h"
#include "tensor/tensor_view.h"
#include "tensor/thread_pool.h"

namespace headrace {

enum class DeviceKind { kCpu, kCuda, kNull };

// What kernels ask before they say that they support a case.
struct DeviceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;
  CpuFeatures cpu;                 // of the host, on every device
  int32_t compute_capability = 0;  // CUDA: 90 for Hopper
  int32_t sm_count = 0;
  int64_t memory_bytes = 0;  // total
  int32_t index = 0;         // CUDA: its number on this machine
  // Kernels whose order of sums depends on what else is in a batch do not support anything.
  bool batch_invariant = false;
};

class Device;

enum class MemoryKind {
  kDevice,  // kernels of the device read and write it
  kHost,    // the host's; on CUDA page-locked, so that copies between it and the device overlap
};

// Owns a range of memory, 64-byte aligned (256 on CUDA). Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, std::byte* data, int64_t size, MemoryKind kind = MemoryKind::kDevice)
      : device_(device), data_(data), size_(size), kind_(kind) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  Device* device() const { return device_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(kind_, other.kind_);
  }
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

// A point in a stream. CPU streams are synchronous: their events are always complete.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool complete() const = 0;
  virtual void wait() const = 0;  // blocks the calling thread
  // On the device's clock. REQUIRES: both are of Stream::create_timer() and complete
  virtual double seconds_since(const Event& earlier) const = 0;
};

// Work recorded from a stream, to be started again as a whole. Addresses and sizes are those of the
// recording; what lies in memory is read anew.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Ordered work. The CPU stream runs everything at once on the calling thread. On CUDA a copy to or
// from host memory that allocate_host() did not give blocks the caller.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy_in(std::byte* device_to, const std::byte* host_from, int64_t bytes) = 0;
  virtual void copy_out(std::byte* host_to, const std::byte* device_from, int64_t bytes) = 0;
  virtual void copy(std::byte* device_to, const std::byte* device_from, int64_t bytes) = 0;
  virtual void fill_zero(std::byte* device_to, int64_t bytes) = 0;
  // Runs `work` on the host, on a thread of its own, when all before it here has ended, and before
  // what follows. It must not use the device.
  virtual void call(std::function<void()> work) = 0;
  virtual std::unique_ptr<Event> record() = 0;
  // An event that says when it was reached, to be recorded as often as one likes, by a graph at
  // each replay; not yet recorded, it is complete.
  virtual std::unique_ptr<Event> create_timer() = 0;
  virtual void record(Event& timer) = 0;
  virtual void wait(const Event& event) = 0;  // what follows here runs after the event; no blocking
  virtual Status synchronize() = 0;           // the error is sticky on CUDA
  virtual Status status() = 0;                // errors seen so far, without waiting
  // Something did not start here, or is lost: what follows may be computed of nothing, so that
  // status() is this from now on, where it was no error before, and a recording is none. Any
  // thread.
  virtual void fail(Status error) = 0;
  // What is started between the two is recorded and not run. kUnsupported on the CPU.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;
  virtual void launch(const Graph& graph) = 0;  // of this device
  virtual void* native() const = 0;             // cudaStream_t, or nullptr
};

class GemmLibrary;  // tensor/gemm_library.h

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceTraits& traits() const = 0;
  // Uninitialised memory; errors name the size asked for and what is free. Not in a step.
  virtual Result<Buffer> allocate(int64_t bytes) = 0;
  virtual Result<Buffer> allocate_host(int64_t bytes) = 0;
  virtual std::unique_ptr<Stream> create_stream() = 0;
  // From now on what the calling thread launches is for this device. Where a process has several
  // GPUs, each thread that uses one calls it first, and again once it has used another.
  virtual void make_current() const {}
  virtual int64_t free_bytes() const = 0;
  // Host threads: CPU kernels run on them, and a CUDA device's weights are converted on them.
  virtual ThreadPool& pool() = 0;
  // The vendor's matrix products, opened at the first call; an error names the library that is
  // missing. kUnsupported on the CPU.
  virtual Result<GemmLibrary*> gemm_library() = 0;

  DeviceKind kind() const { return traits().kind; }
  // Whether nobody has asked with `what` before: for lines of the log that are said once. Any
  // thread.
  bool first_time(std::string what) {
    const std::lock_guard lock(said_mutex_);
    return said_.insert(std::move(what)).second;
  }

 private:
  friend class Buffer;
  virtual void release(std::byte* data, int64_t bytes, MemoryKind kind) = 0;

  std::mutex said_mutex_;
  std::set<std::string> said_;
};

inline Buffer::~Buffer() {
  if (data_ != nullptr) device_->release(data_, size_, kind_);
}

// `thread_count` 0 = as place_threads() says. `batch_invariant`: see DeviceTraits.
std::unique_ptr<Device> create_cpu_device(int thread_count,
                                          CpuFeatures features = CpuFeatures::detect(),
                                          CpuBinding binding = CpuBinding::kAuto,
                                          bool batch_invariant = true);
// The same with threads that are placed already.
std::unique_ptr<Device> create_cpu_device(ThreadPlacement threads, bool batch_invariant);
// Fails with a clear message where the build has no CUDA, the machine no driver or GPU, or where
// the GPU is of a kind that this program has no kernels for (kUnsupported, tensor/gpu_kind.h).
// `thread_count` as above. `batch_invariant`: see DeviceTraits.
Result<std::unique_ptr<Device>> create_cuda_device(int index, int thread_count = 0,
                                                   bool batch_invariant = false);
bool built_with_cuda();

// The null device: memory of the host, streams that record, and kernels (ops/null_kernels.cc) that
// keep the tables of slots and draw a token of its row's random bits. Steps end at once, or take as
// long as is said here; a thread that waits for one sleeps.
struct NullDeviceOptions {
  double call_seconds = 0;  // of each kernel that is given to Stream::call(), on the device's clock
  int64_t sweep_bytes = 0;  // read by who waits for an event, as if caches had lost what they held
};
std::unique_ptr<Device> create_null_device(const NullDeviceOptions& options);
// Whether create_cuda_device(0) would find a GPU. Cheap: starts nothing on it.
bool cuda_device_present();

}  // namespace headrace
