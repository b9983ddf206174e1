// A GPU of host memory, for tests that need no real one: weights can be packed for it and kernels
// be asked whether they fit; nothing runs on it.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "ops/op.h"
#include "tensor/gemm_library.h"

namespace headrace {

inline DeviceTraits h200(bool batch_invariant) {
  return {.kind = DeviceKind::kCuda,
          .name = "H200",
          .compute_capability = 90,
          .sm_count = 132,
          .batch_invariant = batch_invariant};
}

class FakeGpu final : public Device {
 public:
  FakeGpu() : memory_(create_null_device({})), traits_(h200(false)) {}
  const DeviceTraits& traits() const override { return traits_; }
  // A buffer is this device's, as a weight asks its own.
  Result<Buffer> allocate(int64_t bytes) override {
    HR_ASSIGN_OR_RETURN(Buffer memory, memory_->allocate(bytes));
    std::byte* const data = memory.data();
    buffers_[data] = std::move(memory);
    return Buffer(this, data, bytes);
  }
  Result<Buffer> allocate_host(int64_t bytes) override { return memory_->allocate_host(bytes); }
  std::unique_ptr<Stream> create_stream() override { return memory_->create_stream(); }
  int64_t free_bytes() const override { return memory_->free_bytes(); }
  ThreadPool& pool() override { return memory_->pool(); }
  Result<GemmLibrary*> gemm_library() override { return &library_; }

 private:
  class Library final : public GemmLibrary {
    bool has_float8() const override { return true; }
    void run(Stream&, const GemmArgs&, std::byte*) override {}
    void begin_trial(Stream&) override {}
    void end_trial() override {}
  };
  void release(std::byte* data, int64_t, MemoryKind) override { buffers_.erase(data); }

  std::unique_ptr<Device> memory_;
  std::map<std::byte*, Buffer> buffers_;
  DeviceTraits traits_;
  Library library_;
};

}  // namespace headrace
