#include "tensor/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/check.h"

namespace headrace {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Of address space; what is not touched costs nothing.
constexpr size_t kChunkBytes = size_t{64} << 20;
// The first bytes of a chunk are in pages of 4 KiB: a short answer uses 0.4 MiB of the keys and
// values and 0.5 of the scratch memory of a small model, and would have 2 of each.
constexpr size_t kSmallPagesBytes = kHugePage;
// A piece as large as this has a chunk of its own, which goes back as soon as it does.
constexpr size_t kOwnChunkBytes = size_t{16} << 20;
constexpr size_t kAlignment = 64;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Maps `size` bytes on a huge page's boundary, or gives null.
std::byte* map_aligned(size_t size) {
  const size_t wide = size + kHugePage;
  if (wide < size) return nullptr;
  void* mapped = ::mmap(nullptr, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(first);
  std::byte* const begin = first + (round_up(address, kHugePage) - address);
  if (begin != first) ::munmap(first, static_cast<size_t>(begin - first));
  const auto behind = static_cast<size_t>(first + wide - (begin + size));
  if (behind > 0) ::munmap(begin + size, behind);
  if (size > kSmallPagesBytes) {
    ::madvise(begin + kSmallPagesBytes, size - kSmallPagesBytes, MADV_HUGEPAGE);
  }
  return begin;
}

// The whole huge pages of memory that is not used again; none is split.
void give_back_pages(std::byte* piece, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(piece);
  const size_t before = round_up(address, kHugePage) - address;
  if (bytes < before + kHugePage) return;
  ::madvise(piece + before, (bytes - before) / kHugePage * kHugePage, MADV_DONTNEED);
}

}  // namespace

PageArena::~PageArena() {
  for (const auto& [begin, chunk] : chunks_) ::munmap(begin, chunk.size);
}

std::map<std::byte*, PageArena::Chunk>::iterator PageArena::map_chunk(size_t bytes) {
  std::byte* const begin = map_aligned(bytes);
  if (begin == nullptr) return chunks_.end();
  return chunks_.emplace(begin, Chunk{.size = bytes}).first;
}

std::byte* PageArena::allocate(size_t bytes) {
  CHECK(bytes >= 1);
  if (bytes > SIZE_MAX - kHugePage) return nullptr;
  const size_t size = round_up(bytes, kAlignment);
  std::lock_guard lock(mutex_);
  auto chunk = chunks_.end();
  if (size >= kOwnChunkBytes) {
    chunk = map_chunk(round_up(size, 4096));
  } else {
    if (open_ != nullptr) chunk = chunks_.find(open_);
    if (chunk == chunks_.end() || chunk->second.size - chunk->second.used < size) {
      chunk = map_chunk(kChunkBytes);
      if (chunk != chunks_.end()) open_ = chunk->first;
    }
  }
  if (chunk == chunks_.end()) return nullptr;
  std::byte* const piece = chunk->first + chunk->second.used;
  chunk->second.used += size;
  ++chunk->second.live;
  return piece;
}

void PageArena::release(std::byte* piece, size_t bytes) {
  std::lock_guard lock(mutex_);
  auto chunk = chunks_.upper_bound(piece);
  CHECK(chunk != chunks_.begin());
  chunk = std::prev(chunk);
  CHECK(piece < chunk->first + chunk->second.size && chunk->second.live > 0);
  if (--chunk->second.live > 0) return give_back_pages(piece, bytes);
  if (open_ == chunk->first) open_ = nullptr;
  ::munmap(chunk->first, chunk->second.size);
  chunks_.erase(chunk);
}

}  // namespace headrace
