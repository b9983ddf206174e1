#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/check.h"
#include "tensor/device.h"
#include "tensor/free_memory.h"
#include "tensor/page_arena.h"

namespace headrace {
namespace {

class CpuEvent final : public Event {
 public:
  using Clock = std::chrono::steady_clock;

  bool complete() const override { return true; }
  void wait() const override {}
  double seconds_since(const Event& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const CpuEvent&>(earlier).at_).count();
  }
  void reach() { at_ = Clock::now(); }

 private:
  Clock::time_point at_{};
};

class CpuStream final : public Stream {
 public:
  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes);
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill_zero(std::byte* to, int64_t bytes) override {
    if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
  }
  void call(std::function<void()> work) override { work(); }
  std::unique_ptr<Event> record() override { return std::make_unique<CpuEvent>(); }
  std::unique_ptr<Event> create_timer() override { return std::make_unique<CpuEvent>(); }
  void record(Event& timer) override { static_cast<CpuEvent&>(timer).reach(); }
  void wait(const Event&) override {}
  Status synchronize() override { return ok_status(); }
  Status status() override { return ok_status(); }
  // Its kernels do not fail.
  void fail(Status error) override { CHECK_MSG(false, std::string(error.message()).c_str()); }
  Status begin_capture() override { return unsupported("the CPU records no graphs"); }
  Result<std::unique_ptr<Graph>> end_capture() override {
    return unsupported("the CPU records no graphs");
  }
  void launch(const Graph&) override { CHECK_MSG(false, "the CPU records no graphs"); }
  void* native() const override { return nullptr; }
};

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "x86-64";
}

class CpuDevice final : public Device {
 public:
  CpuDevice(ThreadPlacement threads, const CpuFeatures& features, bool batch_invariant)
      : pool_(std::move(threads)) {
    traits_.kind = DeviceKind::kCpu;
    traits_.name = cpu_name();
    traits_.cpu = features;
    traits_.batch_invariant = batch_invariant;
    traits_.memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  }

  const DeviceTraits& traits() const override { return traits_; }

  Result<Buffer> allocate(int64_t bytes) override { return take(bytes, MemoryKind::kDevice); }
  Result<Buffer> allocate_host(int64_t bytes) override { return take(bytes, MemoryKind::kHost); }

  std::unique_ptr<Stream> create_stream() override { return std::make_unique<CpuStream>(); }

  int64_t free_bytes() const override { return free_memory_bytes().value_or(traits_.memory_bytes); }

  ThreadPool& pool() override { return pool_; }
  Result<GemmLibrary*> gemm_library() override {
    return unsupported("the CPU has kernels of its own for matrix products");
  }

 private:
  Result<Buffer> take(int64_t bytes, MemoryKind kind) {
    CHECK(bytes >= 0);
    std::byte* const data = memory_.allocate(std::max<size_t>(static_cast<size_t>(bytes), 1));
    if (data == nullptr) {
      return exhausted(fmt::format("cannot allocate {} MiB of memory ({} MiB free)", bytes >> 20,
                                   free_bytes() >> 20));
    }
    return Buffer(this, data, bytes, kind);
  }
  void release(std::byte* data, int64_t bytes, MemoryKind) override {
    memory_.release(data, static_cast<size_t>(bytes));
  }

  DeviceTraits traits_;
  PageArena memory_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Device> create_cpu_device(int thread_count, CpuFeatures features,
                                          CpuBinding binding, bool batch_invariant) {
  return std::make_unique<CpuDevice>(place_threads(CpuTopology::read(), thread_count, binding),
                                     features, batch_invariant);
}

std::unique_ptr<Device> create_cpu_device(ThreadPlacement threads, bool batch_invariant) {
  return std::make_unique<CpuDevice>(std::move(threads), CpuFeatures::detect(), batch_invariant);
}

}  // namespace headrace
