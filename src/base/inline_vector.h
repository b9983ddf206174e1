// InlineVector: a vector whose first N elements need no memory of their own. For lists that are
// almost always that short and are made by the hundred in every step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace headrace {

template <class T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && N > 0);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) { append(values.begin(), values.size()); }
  InlineVector(const InlineVector& other) { append(other.data(), other.size()); }
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    clear();
    append(other.data(), other.size());
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this == &other) return *this;
    free_heap();
    take(other);
    return *this;
  }
  ~InlineVector() { free_heap(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return on_heap() ? heap_ : inline_; }
  const T* data() const { return on_heap() ? heap_ : inline_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  // REQUIRES: not empty
  const T& front() const { return data()[0]; }
  const T& back() const { return data()[size_ - 1]; }

  void clear() { size_ = 0; }
  // Lets go of all behind the first `count`. REQUIRES: count <= size()
  void cut(size_t count) {
    CHECK(count <= size_);
    size_ = static_cast<uint32_t>(count);
  }
  void push_back(T value) {
    if (size_ == capacity_) grow(2 * size_t{capacity_});
    data()[size_++] = value;
  }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  bool on_heap() const { return capacity_ > N; }
  void append(const T* values, size_t count) {
    if (size_ + count > capacity_) grow(size_ + count);
    if (count > 0) std::memcpy(data() + size_, values, count * sizeof(T));
    size_ += static_cast<uint32_t>(count);
  }
  void grow(size_t capacity) {
    CHECK(capacity <= UINT32_MAX);
    T* const larger = new T[capacity];
    std::memcpy(larger, data(), size_ * sizeof(T));
    free_heap();
    heap_ = larger;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void free_heap() {
    if (on_heap()) delete[] heap_;
  }
  // REQUIRES: nothing of its own is on the heap, or was freed
  void take(InlineVector& other) {
    std::memcpy(inline_, other.inline_, sizeof(inline_));  // or the address, which lies there too
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, static_cast<uint32_t>(N));
  }

  union {
    T inline_[std::max(N, (sizeof(T*) + sizeof(T) - 1) / sizeof(T))] = {};
    T* heap_;
  };
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
};

}  // namespace headrace
