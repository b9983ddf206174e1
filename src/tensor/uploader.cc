#include "tensor/uploader.h"

#include <algorithm>

namespace headrace {
namespace {

constexpr int64_t kTaskBytes = 256 << 10;  // of one thread at a time: some 50 us of conversion

}  // namespace

Result<std::unique_ptr<Uploader>> Uploader::create(Device& device) {
  HR_ASSIGN_OR_RETURN(Buffer staging, device.allocate_host(kChunks * kChunkBytes));
  return std::unique_ptr<Uploader>(new Uploader(device, std::move(staging)));
}

Uploader::Uploader(Device& device, Buffer staging)
    : device_(device),
      staging_(std::move(staging)),
      chunk_bytes_(kChunkBytes),
      stream_(device.create_stream()),
      copied_(kChunks) {}

Uploader::~Uploader() { (void)stream_->synchronize(); }

Status Uploader::upload(std::byte* to, int64_t row_count, int64_t row_bytes,
                        const MakeRows& make_rows) {
  if (row_bytes > chunk_bytes_) {  // a row longer than a chunk: all of the staging is one chunk
    HR_RETURN_IF_ERROR(stream_->synchronize());
    for (auto& event : copied_) event.reset();
    CHECK(row_bytes <= staging_.size());
    chunk_bytes_ = staging_.size();
    next_ = 0;
  }
  const int64_t chunk_rows = std::max<int64_t>(1, chunk_bytes_ / std::max<int64_t>(row_bytes, 1));
  const int64_t task_rows = std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(row_bytes, 1));
  const auto chunks = static_cast<int>(staging_.size() / chunk_bytes_);
  for (int64_t first = 0; first < row_count; first += chunk_rows) {
    const int64_t count = std::min(chunk_rows, row_count - first);
    std::byte* chunk = staging_.data() + next_ * chunk_bytes_;
    if (copied_[static_cast<size_t>(next_)]) copied_[static_cast<size_t>(next_)]->wait();
    device_.pool().parallel_for(count, task_rows, [&](int64_t begin, int64_t end) {
      make_rows(first + begin, first + end, chunk + begin * row_bytes);
    });
    stream_->copy_in(to + first * row_bytes, chunk, count * row_bytes);
    copied_[static_cast<size_t>(next_)] = stream_->record();
    next_ = (next_ + 1) % chunks;
  }
  return stream_->synchronize();
}

}  // namespace headrace
