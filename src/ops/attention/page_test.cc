// Where the components of a page lie in shared memory: kernels read them and put new ones there by
// Page::at(), the copy engine by its box and the swizzle of the tensor map.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>

#include "ops/attention/page.cuh"

namespace headrace::gpu::page_test {
namespace {

// (token, component) of each 16-bit element by its byte offset, as a box {chunk, 8 tokens, d /
// chunk, 2 groups of tokens} comes in: the first dimension innermost, then 16-byte units XORed with
// the row of their pattern of 8 rows (CUDA driver API: CU_TENSOR_MAP_SWIZZLE_32B, 64B, 128B).
template <int kDim>
std::map<int, std::pair<int, int>> copied_page() {
  constexpr int kChunk = kDim % 64 == 0 ? 64 : kDim % 32 == 0 ? 32 : 16;
  constexpr int kUnits = kChunk / 8;  // 8, 4 or 2 in a row of the pattern
  std::map<int, std::pair<int, int>> elements;
  int row = 0;  // of chunks, as they lie
  for (int group = 0; group < 2; ++group) {
    for (int chunk = 0; chunk < kDim / kChunk; ++chunk) {
      for (int token = 0; token < 8; ++token, ++row) {
        for (int i = 0; i < kChunk; ++i) {
          // A pattern of 1,024 bytes is XORed by its row of 128 bytes, of 512 by half of it, ...
          const int line = row * kUnits / 8;  // of 128 bytes
          const int unit = (i / 8) ^ (line % kUnits);
          const int offset = row * kChunk * 2 + unit * 16 + i % 8 * 2;
          elements[offset] = {group * 8 + token, chunk * kChunk + i};
        }
      }
    }
  }
  return elements;
}

template <int kDim>
void expect_places() {
  const auto elements = copied_page<kDim>();
  ASSERT_EQ(elements.size(), static_cast<size_t>(kDim * kPageTokens));
  for (int token = 0; token < kPageTokens; ++token) {
    for (int d = 0; d < kDim; d += 8) {
      const int at = Page<kDim>::at(Page<kDim>::lane_part(token, d % 16), d / 16 * 16);
      EXPECT_EQ(at % 16, 0);
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(elements.at(at + 2 * i), std::pair(token, d + i)) << kDim;
      }
    }
  }
}

TEST(AttentionPage, UnitsLieWhereTheCopyEnginePutsThem) {
  expect_places<64>();
  expect_places<80>();
  expect_places<96>();
  expect_places<128>();
  expect_places<192>();
  expect_places<256>();
}

}  // namespace
}  // namespace headrace::gpu::page_test
