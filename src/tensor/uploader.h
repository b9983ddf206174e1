// Uploader: fills device memory with rows that host threads make, at the rate of the link. Each
// thread has page-locked memory and a stream of its own: while one chunk of its is on its way to
// the device it makes the next. Nobody waits for the slowest of a group, so the link does not idle
// between matrices either.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

class Uploader {
 public:
  // The device outlives it. Memory is taken by the threads as they start. REQUIRES: thread_count >=
  // 1
  Uploader(Device& device, int thread_count);
  // Drops what was not begun, and waits for the rest.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // make_rows(first, last, out) writes rows [first, last), `row_bytes` each, dense. Ranges are
  // asked for in order, several at a time from different threads.
  using MakeRows = std::function<void(int64_t first, int64_t last, std::byte* out)>;
  // Queues; does not block. `make_rows` is destroyed when its last row is made. Any thread.
  void start(std::byte* to, int64_t row_count, int64_t row_bytes, MakeRows make_rows);
  // Returns when all that was started is on the device, where work of any stream may read it, or
  // failed. To be called before the device memory is given back.
  Status finish();

 private:
  // Twice this for each thread: 76 us on a 55 GB/s link. With 16 threads, 16 GiB from the page
  // cache reach an H200 at 31 / 45 / 51 / 53 / 51 GB/s in chunks of 0.5 / 1 / 2 / 4 / 8 MiB, by
  // memcpy from the mapping as by pread.
  static constexpr int64_t kChunkBytes = 4 << 20;
  static constexpr int kChunksPerThread = 2;

  struct Job {
    std::byte* to;
    int64_t row_count;
    int64_t row_bytes;
    MakeRows make_rows;
    int64_t next_row = 0;  // guarded by mutex_
  };
  struct Piece {
    std::shared_ptr<Job> job;
    int64_t first, last;
  };
  // Page-locked memory of one thread, in chunks that are used in turn.
  class Staging;

  void work(Stream& stream);
  std::optional<Piece> take();
  void piece_done(const Status& status);

  Device& device_;
  std::vector<std::unique_ptr<Stream>> streams_;  // [threads]
  std::mutex mutex_;                              // guards what follows
  std::condition_variable work_there_, all_made_;
  std::deque<std::shared_ptr<Job>> jobs_;
  int64_t pieces_being_made_ = 0;
  bool stop_ = false;
  Status status_;  // the first that went wrong
  std::vector<std::thread> threads_;
};

}  // namespace headrace
