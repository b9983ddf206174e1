// Anonymous memory in large chunks of 2-MiB pages (but for the first 2 MiB), handed out in pieces.
// A model has hundreds of buffers, most of them smaller than a huge page: mapped one by one, every
// 4 KiB of them would be a page fault (20,000 of them, 25 ms of a start of 46, for 90 MB of
// weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace headrace {

// Any thread.
class PageArena {
 public:
  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Zeroed memory on 64 bytes, or null where the system has no more. Costs memory only where it is
  // touched. REQUIRES: bytes >= 1
  std::byte* allocate(size_t bytes);
  // A chunk goes back to the system with its last piece; before that the 2-MiB pages that were this
  // piece's alone. REQUIRES: from allocate() of as many bytes
  void release(std::byte* piece, size_t bytes);

 private:
  struct Chunk {
    size_t size;
    size_t used = 0;
    size_t live = 0;  // pieces
  };
  std::map<std::byte*, Chunk>::iterator map_chunk(size_t bytes);

  std::mutex mutex_;
  std::map<std::byte*, Chunk> chunks_;  // by address
  std::byte* open_ = nullptr;           // the chunk that pieces are cut from, or null
};

}  // namespace headrace
