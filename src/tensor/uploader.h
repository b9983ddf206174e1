// Uploader: fills device memory with rows that host threads make, through page-locked memory. While
// one chunk is on its way to the device the pool makes the next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

class Uploader {
 public:
  // The device outlives it.
  static Result<std::unique_ptr<Uploader>> create(Device& device);
  ~Uploader();

  // make_rows(first, last, out) writes rows [first, last), `row_bytes` each, dense. It is called on
  // the device's pool, in any order. Returns when `to` may be read by work of any stream.
  using MakeRows = std::function<void(int64_t first, int64_t last, std::byte* out)>;
  Status upload(std::byte* to, int64_t row_count, int64_t row_bytes, const MakeRows& make_rows);

 private:
  // 4 chunks of 16 MiB: a chunk takes 0.3 ms on a 55 GB/s link, long beside a launch.
  static constexpr int64_t kChunkBytes = 16 << 20;
  static constexpr int kChunks = 4;

  Uploader(Device& device, Buffer staging);

  Device& device_;
  Buffer staging_;
  int64_t chunk_bytes_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Event>> copied_;  // per chunk: its last copy
  int next_ = 0;
};

}  // namespace headrace
