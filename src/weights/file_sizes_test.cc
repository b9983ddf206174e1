// The arithmetic of sizes, on which every check of a file rests: a million random shapes of each
// kind against 128-bit integers. A size is either that of the reference or refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace headrace::file_sizes_test {
namespace {

constexpr int kShapes = 1'000'000;
constexpr auto kLimit = static_cast<unsigned __int128>(INT64_MAX);

// Dimensions of every magnitude from 1, most of them near a power of two. (With a 0 among them it
// is open whether the other factors may overflow; such shapes are in the tests of each format.)
Shape random_shape(Rng& rng) {
  std::array<int64_t, Shape::kRankMax> dims{};
  const auto rank = static_cast<size_t>(rng.below(Shape::kRankMax + 1));
  for (size_t i = 0; i < rank; ++i) {
    const auto bit = static_cast<int>(rng.below(i + 1 == rank ? 63 : 40));
    const int64_t power = int64_t{1} << bit;
    switch (rng.below(4)) {
      case 0:
        dims[i] = power;
        break;
      case 1:
        dims[i] = power - 1;
        break;
      case 2:
        dims[i] = power + static_cast<int64_t>(rng.below(300));
        break;
      default:
        dims[i] = static_cast<int64_t>(rng.below(static_cast<uint64_t>(power)) / 32 * 32);
        break;
    }
    dims[i] = std::max<int64_t>(dims[i], 1);
  }
  return Shape(std::span<const int64_t>(dims.data(), rank));
}

// Elements of a shape, or "too many" where they or a factor on the way leave 63 bits.
std::optional<unsigned __int128> reference_elements(const Shape& shape) {
  unsigned __int128 elements = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    elements *= static_cast<unsigned __int128>(shape[i]);
    if (elements > kLimit) return std::nullopt;
  }
  return elements;
}

struct Counts {
  int accepted = 0, refused = 0;
};

// `size`: what is tested; `reference`: the same without overflow, empty where it must be refused.
template <class Size, class Reference>
Counts compare(uint64_t seed, const Size& size, const Reference& reference) {
  Rng rng(seed);
  Counts counts;
  for (int i = 0; i < kShapes; ++i) {
    const Shape shape = random_shape(rng);
    const auto pick = static_cast<size_t>(rng.below(1 << 20));
    const std::optional<int64_t> actual = size(pick, shape);
    const std::optional<unsigned __int128> expected = reference(pick, shape);
    ++(actual ? counts.accepted : counts.refused);
    if (actual.has_value() != expected.has_value() ||
        (actual && static_cast<unsigned __int128>(*actual) != *expected)) {
      ADD_FAILURE() << shape.to_string() << " pick " << pick;
      break;
    }
  }
  return counts;
}

std::optional<unsigned __int128> in_blocks(const Shape& shape, int64_t block_elements,
                                           int64_t block_bytes) {
  const int64_t row = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  if (row % block_elements != 0) return std::nullopt;
  unsigned __int128 bytes = static_cast<unsigned __int128>(row / block_elements) *
                            static_cast<unsigned __int128>(block_bytes);
  for (int i = 0; i + 1 < shape.rank() && bytes <= kLimit; ++i) {
    bytes *= static_cast<unsigned __int128>(shape[i]);
  }
  return bytes > kLimit ? std::nullopt : std::optional(bytes);
}

void expect_both(const Counts& counts) {
  EXPECT_GT(counts.accepted, kShapes / 20);
  EXPECT_GT(counts.refused, kShapes / 20);
}

TEST(FileSizes, OfViews) {
  const auto type = [](size_t pick) { return static_cast<DType>(pick % kDTypeInfo.size()); };
  expect_both(compare(
      1, [&](size_t pick, const Shape& shape) { return tensor_bytes(type(pick), shape); },
      [&](size_t pick, const Shape& shape) {
        const DTypeInfo& info = dtype_info(type(pick));
        return in_blocks(shape, info.block_elements, info.block_bytes);
      }));
}

TEST(FileSizes, OfGgufTensors) {
  const auto type = [](size_t pick) -> const GgufType& {
    return gguf_types()[pick % gguf_types().size()];
  };
  expect_both(compare(
      2, [&](size_t pick, const Shape& shape) { return gguf_tensor_bytes(type(pick), shape); },
      [&](size_t pick, const Shape& shape) -> std::optional<unsigned __int128> {
        if (type(pick).block_elements == 0) return std::nullopt;  // removed from the format
        if (!reference_elements(shape)) return std::nullopt;
        return in_blocks(shape, type(pick).block_elements, type(pick).block_bytes);
      }));
}

TEST(FileSizes, OfSafetensors) {
  const auto type = [](size_t pick) -> const SafetensorsType& {
    return safetensors_types()[pick % safetensors_types().size()];
  };
  expect_both(compare(
      3,
      [&](size_t pick, const Shape& shape) { return safetensors_tensor_bytes(type(pick), shape); },
      [&](size_t pick, const Shape& shape) -> std::optional<unsigned __int128> {
        const auto elements = reference_elements(shape);
        if (!elements) return std::nullopt;
        const unsigned __int128 bits = *elements * static_cast<unsigned __int128>(type(pick).bits);
        if (bits > kLimit || bits % 8 != 0) return std::nullopt;
        return bits / 8;
      }));
}

}  // namespace
}  // namespace headrace::file_sizes_test
