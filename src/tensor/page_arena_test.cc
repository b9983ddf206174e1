#include "tensor/page_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace headrace::page_arena_test {
namespace {

TEST(PageArena, PiecesAreZeroedAlignedAndApart) {
  PageArena arena;
  std::vector<std::byte*> pieces;
  const std::vector<size_t> sizes = {1, 63, 64, 65, 4096, 1000, 3 << 20, 15 << 20, 40 << 20, 7};
  for (const size_t size : sizes) {
    std::byte* const piece = arena.allocate(size);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
    EXPECT_TRUE(std::all_of(piece, piece + size, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(piece, piece + size, static_cast<std::byte>(pieces.size() + 1));
    pieces.push_back(piece);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto mine = static_cast<std::byte>(i + 1);
    EXPECT_TRUE(
        std::all_of(pieces[i], pieces[i] + sizes[i], [=](std::byte b) { return b == mine; }));
  }
  for (size_t i = 0; i < sizes.size(); ++i) arena.release(pieces[i], sizes[i]);
}

TEST(PageArena, MemoryIsFreshAfterAChunkWentBack) {
  PageArena arena;
  for (int round = 0; round < 3; ++round) {
    std::byte* const a = arena.allocate(100);
    std::byte* const b = arena.allocate(32 << 20);
    EXPECT_EQ(a[99], std::byte{0});
    EXPECT_EQ(b[(32 << 20) - 1], std::byte{0});
    a[99] = b[(32 << 20) - 1] = std::byte{1};
    arena.release(a, 100);
    arena.release(b, 32 << 20);
  }
}

// As of adapters that come and go beside one that stays.
TEST(PageArena, ALargePieceGoesBackBeforeItsChunk) {
  PageArena arena;
  constexpr size_t kPiece = 12 << 20, kPages = kPiece / 4096;
  std::byte* const first = arena.allocate(100);
  std::byte* const large = arena.allocate(kPiece);
  std::byte* const last = arena.allocate(100);
  std::fill(large, large + kPiece, std::byte{1});
  first[99] = last[0] = last[99] = std::byte{1};
  const auto resident = [&] {
    std::vector<unsigned char> pages(kPages);
    const auto begin = reinterpret_cast<uintptr_t>(large) & ~uintptr_t{4095};
    EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), kPiece, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  };
  EXPECT_EQ(resident(), int64_t{kPages});
  arena.release(large, kPiece);
  EXPECT_LE(resident(), 2 * 512);  // parts of the first and the last 2-MiB page
  EXPECT_TRUE(first[99] == std::byte{1} && last[0] == std::byte{1} && last[99] == std::byte{1});
}

TEST(PageArena, MoreThanThereIsGivesNull) {
  PageArena arena;
  EXPECT_EQ(arena.allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(arena.allocate(size_t{1} << 62), nullptr);
  EXPECT_NE(arena.allocate(10), nullptr);
}

}  // namespace
}  // namespace headrace::page_arena_test
