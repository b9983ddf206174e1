#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/first_error.h"
#include "tensor/device.h"

namespace headrace {
namespace {

// Memory that nobody touches costs nothing: a pool of any size can be had.
std::byte* map_bytes(int64_t bytes) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// What a waiting thread does beside waiting: it reads memory, which takes the place of what its
// caches held.
class CacheSweep {
 public:
  explicit CacheSweep(int64_t bytes) : words_(static_cast<size_t>(bytes) / sizeof(uint64_t), 1) {}
  void run() {
    constexpr size_t kLine = 64 / sizeof(uint64_t);
    for (size_t i = 0; i < words_.size(); i += kLine) sum_ = sum_ + words_[i];
  }

 private:
  std::vector<uint64_t> words_;
  volatile uint64_t sum_ = 0;
};

class NullEvent final : public Event {
 public:
  explicit NullEvent(CacheSweep& sweep) : sweep_(sweep) {}

  bool complete() const override { return clock_.now_ns() >= at_ns_; }
  void wait() const override {
    if (const int64_t left = at_ns_ - clock_.now_ns(); left > 0) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(left));
    }
    sweep_.run();
  }
  double seconds_since(const Event& earlier) const override {
    return static_cast<double>(at_ns_ - static_cast<const NullEvent&>(earlier).at_ns_) * 1e-9;
  }
  void set(int64_t at_ns) { at_ns_ = at_ns; }

 private:
  CacheSweep& sweep_;
  const SystemClock clock_;
  int64_t at_ns_ = 0;
};

class NullStream;

class NullGraph final : public Graph {
 public:
  using Work = std::vector<std::function<void(NullStream& started_on)>>;
  explicit NullGraph(Work work) : work_(std::move(work)) {}
  const Work& work() const { return work_; }

 private:
  Work work_;
};

// Everything is done at once; only events say that it took a while.
class NullStream final : public Stream {
 public:
  NullStream(int64_t call_ns, CacheSweep& sweep) : call_ns_(call_ns), sweep_(sweep) {}

  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes);
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    copy(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    do_or_record([=](NullStream&) {
      if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    });
  }
  void fill_zero(std::byte* to, int64_t bytes) override {
    do_or_record([=](NullStream&) {
      if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
    });
  }
  void call(std::function<void()> work) override {
    do_or_record([work = std::move(work)](NullStream& stream) { stream.run(work); });
  }
  std::unique_ptr<Event> record() override {
    auto event = std::make_unique<NullEvent>(sweep_);
    event->set(std::max(busy_until_ns_, clock_.now_ns()));
    return event;
  }
  std::unique_ptr<Event> create_timer() override { return std::make_unique<NullEvent>(sweep_); }
  void record(Event& timer) override {
    do_or_record([&event = static_cast<NullEvent&>(timer)](NullStream& stream) {
      event.set(std::max(stream.busy_until_ns_, stream.clock_.now_ns()));
    });
  }
  void wait(const Event&) override {}
  Status synchronize() override { return failure_.first(); }
  Status status() override { return failure_.first(); }
  void fail(Status error) override { failure_.add(std::move(error)); }
  Status begin_capture() override {
    capturing_ = true;
    captured_.clear();
    return ok_status();
  }
  Result<std::unique_ptr<Graph>> end_capture() override {
    capturing_ = false;
    HR_RETURN_IF_ERROR(status());
    return std::unique_ptr<Graph>(std::make_unique<NullGraph>(std::move(captured_)));
  }
  void launch(const Graph& graph) override {
    for (const auto& work : static_cast<const NullGraph&>(graph).work()) work(*this);
  }
  void* native() const override { return nullptr; }

 private:
  template <class Work>
  void do_or_record(Work work) {
    if (capturing_) {
      captured_.emplace_back(std::move(work));
    } else {
      work(*this);
    }
  }
  void run(const std::function<void()>& work) {
    work();
    if (call_ns_ > 0) busy_until_ns_ = std::max(busy_until_ns_, clock_.now_ns()) + call_ns_;
  }

  const int64_t call_ns_;
  CacheSweep& sweep_;
  const SystemClock clock_;
  int64_t busy_until_ns_ = 0;
  bool capturing_ = false;
  NullGraph::Work captured_;
  FirstError failure_;
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(const NullDeviceOptions& options)
      : call_ns_(static_cast<int64_t>(options.call_seconds * 1e9)), sweep_(options.sweep_bytes) {
    traits_.kind = DeviceKind::kNull;
    traits_.name = "null";
    traits_.cpu = CpuFeatures::detect();
    traits_.sm_count = 132;  // an H200's: attention's work is cut by it
    traits_.memory_bytes = int64_t{141} << 30;
  }

  const DeviceTraits& traits() const override { return traits_; }
  Result<Buffer> allocate(int64_t bytes) override { return take(bytes, MemoryKind::kDevice); }
  Result<Buffer> allocate_host(int64_t bytes) override { return take(bytes, MemoryKind::kHost); }
  std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<NullStream>(call_ns_, sweep_);
  }
  int64_t free_bytes() const override { return traits_.memory_bytes; }
  ThreadPool& pool() override { return pool_; }
  Result<GemmLibrary*> gemm_library() override {
    return unsupported("the null device multiplies nothing");
  }

 private:
  Result<Buffer> take(int64_t bytes, MemoryKind kind) {
    CHECK(bytes >= 0);
    std::byte* const data = map_bytes(std::max<int64_t>(bytes, 1));
    if (data == nullptr) {
      return exhausted(fmt::format("cannot map {} MiB for the null device", bytes >> 20));
    }
    return Buffer(this, data, bytes, kind);
  }
  void release(std::byte* data, int64_t bytes, MemoryKind) override {
    ::munmap(data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  }

  const int64_t call_ns_;
  CacheSweep sweep_;
  DeviceTraits traits_;
  ThreadPool pool_{1};
};

}  // namespace

std::unique_ptr<Device> create_null_device(const NullDeviceOptions& options) {
  return std::make_unique<NullDevice>(options);
}

}  // namespace headrace
