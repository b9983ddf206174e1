// ArenaPlaces: where the parts of one memory lie, front to back. It holds no memory. A placement is
// a function that takes its parts from an ArenaPlaces: what plans memory runs it to count, what
// fills the memory runs it to know where each part begins, so that the two cannot differ.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/tensor_view.h"

namespace headrace {

// Where `count` values lie in an arena, wherever the arena itself lies.
template <class T>
struct ArenaPart {
  int64_t first = 0;  // bytes from the arena's front
  size_t count = 0;

  int64_t bytes() const { return static_cast<int64_t>(count * sizeof(T)); }
  T* in(std::byte* arena) const { return reinterpret_cast<T*>(arena + first); }
};

// The same of a dense tensor.
struct TensorPart {
  int64_t first = 0;
  DType dtype = DType::kF32;
  Shape shape;

  TensorView in(std::byte* arena) const { return {arena + first, dtype, shape}; }
};

// Hands out an arena's bytes front to back: equal calls give equal places.
class ArenaPlaces {
 public:
  static constexpr int64_t kAlignment = 256;

  ArenaPlaces() = default;
  // Every part begins on a multiple of `alignment`.
  explicit ArenaPlaces(int64_t alignment) : alignment_(alignment) {}

  template <class T>
  ArenaPart<T> take(size_t count) {
    return {begin_part(static_cast<int64_t>(count * sizeof(T))), count};
  }
  TensorPart take_tensor(DType dtype, Shape shape) {
    return {begin_part(*tensor_bytes(dtype, shape)), dtype, shape};
  }

  // From the arena's front to the end of the last part.
  int64_t used() const { return used_; }
  // Of the parts alone, without what lies between them.
  int64_t part_bytes() const { return part_bytes_; }
  // Of an arena for these parts, in any order, that may be taken in as many as `parts_max` pieces:
  // each may begin behind a gap. REQUIRES: no more parts were taken
  int64_t bytes_for(int64_t parts_max) const {
    CHECK(parts_ <= parts_max);
    return part_bytes_ + parts_max * alignment_;
  }

 private:
  int64_t begin_part(int64_t bytes) {
    const int64_t first = (used_ + alignment_ - 1) / alignment_ * alignment_;
    used_ = first + bytes;
    part_bytes_ += bytes;
    ++parts_;
    return first;
  }

  int64_t alignment_ = kAlignment;
  int64_t used_ = 0;
  int64_t part_bytes_ = 0;
  int64_t parts_ = 0;
};

}  // namespace headrace
