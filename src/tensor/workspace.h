// Scratch memory of a step: one buffer, handed out front to back, taken back all at once. The size
// is fixed at start, so that a step allocates nothing.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/device.h"

namespace headrace {

class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(Buffer buffer) : buffer_(std::move(buffer)) {}

  // 64-byte aligned (256 on CUDA); valid until the Mark it was taken under is released.
  std::byte* take(int64_t bytes) {
    const int64_t first = (used_ + 255) & ~int64_t{255};
    CHECK_MSG(first + bytes <= buffer_.size(), "workspace too small: its plan missed an op");
    used_ = first + bytes;
    high_water_ = used_ > high_water_ ? used_ : high_water_;
    return buffer_.data() + first;
  }
  template <class T>
  T* take_array(int64_t count) {
    return reinterpret_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  TensorView take_tensor(DType dtype, Shape shape) {
    return TensorView(take(*tensor_bytes(dtype, shape)), dtype, shape);
  }

  // Gives back, at the end of a scope, what was taken inside it.
  class Mark {
   public:
    explicit Mark(Workspace& workspace) : workspace_(workspace), used_(workspace.used_) {}
    ~Mark() { workspace_.used_ = used_; }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

   private:
    Workspace& workspace_;
    int64_t used_;
  };

  int64_t size() const { return buffer_.size(); }
  int64_t high_water() const { return high_water_; }

 private:
  Buffer buffer_;
  int64_t used_ = 0;
  int64_t high_water_ = 0;
};

}  // namespace headrace
