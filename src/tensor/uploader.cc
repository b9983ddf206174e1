#include "tensor/uploader.h"

#include <algorithm>
#include <array>
#include <utility>

namespace headrace {

class Uploader::Staging {
 public:
  Staging(Device& device, Stream& stream) : device_(device), stream_(stream) {}
  ~Staging() { (void)stream_.synchronize(); }  // copies read this memory

  // A chunk of `bytes` that no copy reads any more.
  Result<std::byte*> next(int64_t bytes) {
    if (bytes > chunk_bytes_) HR_RETURN_IF_ERROR(grow(std::max(bytes, kChunkBytes)));
    turn_ = (turn_ + 1) % kChunksPerThread;
    if (copied_[turn_]) copied_[turn_]->wait();
    return memory_.data() + static_cast<int64_t>(turn_) * chunk_bytes_;
  }
  // Sends the first `bytes` of the chunk that next() gave.
  void send(std::byte* to, int64_t bytes) {
    const std::byte* chunk = memory_.data() + static_cast<int64_t>(turn_) * chunk_bytes_;
    stream_.copy_in(to, chunk, bytes);
    copied_[turn_] = stream_.record();
  }

 private:
  Status grow(int64_t chunk_bytes) {
    HR_RETURN_IF_ERROR(stream_.synchronize());
    for (auto& event : copied_) event.reset();
    HR_ASSIGN_OR_RETURN(memory_, device_.allocate_host(kChunksPerThread * chunk_bytes));
    chunk_bytes_ = chunk_bytes;
    return ok_status();
  }

  Device& device_;
  Stream& stream_;
  Buffer memory_;
  int64_t chunk_bytes_ = 0;
  size_t turn_ = 0;
  std::array<std::unique_ptr<Event>, kChunksPerThread> copied_;  // of each chunk: its last copy
};

Uploader::Uploader(Device& device, int thread_count) : device_(device) {
  CHECK(thread_count >= 1);
  for (int i = 0; i < thread_count; ++i) streams_.push_back(device.create_stream());
  for (const auto& stream : streams_) {
    threads_.emplace_back([this, &stream] { work(*stream); });
  }
}

Uploader::~Uploader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    jobs_.clear();
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Uploader::start(std::byte* to, int64_t row_count, int64_t row_bytes, MakeRows make_rows) {
  if (row_count == 0 || row_bytes == 0) return;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::make_shared<Job>(Job{to, row_count, row_bytes, std::move(make_rows)}));
  }
  work_there_.notify_all();
}

Status Uploader::finish() {
  std::unique_lock lock(mutex_);
  all_made_.wait(lock, [&] { return jobs_.empty() && pieces_being_made_ == 0; });
  Status status = status_;
  lock.unlock();
  for (const auto& stream : streams_) {
    const Status sent = stream->synchronize();
    if (status.ok()) status = sent;
  }
  return status;
}

// The next rows that fill a chunk; at least one. Empty: the uploader ends.
std::optional<Uploader::Piece> Uploader::take() {
  std::unique_lock lock(mutex_);
  work_there_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
  if (stop_) return std::nullopt;
  std::shared_ptr<Job> job = jobs_.front();
  const int64_t first = job->next_row;
  const int64_t rows = std::max<int64_t>(1, kChunkBytes / job->row_bytes);
  job->next_row = std::min(first + rows, job->row_count);
  if (job->next_row == job->row_count) jobs_.pop_front();
  ++pieces_being_made_;
  return Piece{job, first, job->next_row};
}

void Uploader::piece_done(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (status_.ok() && !status.ok()) status_ = status;
  if (--pieces_being_made_ == 0 && jobs_.empty()) all_made_.notify_all();
}

void Uploader::work(Stream& stream) {
  Staging staging(device_, stream);
  while (std::optional<Piece> piece = take()) {
    const Job& job = *piece->job;
    const int64_t bytes = (piece->last - piece->first) * job.row_bytes;
    const Result<std::byte*> chunk = staging.next(bytes);
    if (chunk.ok()) {
      job.make_rows(piece->first, piece->last, *chunk);
      staging.send(job.to + piece->first * job.row_bytes, bytes);
    }
    piece.reset();  // before the piece counts as done: make_rows may hold what finish() waits for
    piece_done(chunk.status());
  }
}

}  // namespace headrace
