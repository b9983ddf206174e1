// Matrix products of the vendor's library: cuBLASLt, opened at run time, so that the program starts
// without it. One object a device (Device::gemm_library()).
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace headrace {

// y [M, N] = x [M, K] w [N, K]^T, or y + that; sums in f32, the result rounded once.
struct GemmArgs {
  const std::byte* x = nullptr;  // rows `x_stride` elements apart
  const std::byte* w = nullptr;  // dense rows
  std::byte* y = nullptr;        // rows `y_stride` elements apart
  int64_t m = 0, n = 0, k = 0;
  int64_t x_stride = 0, y_stride = 0;
  DType dtype = DType::kBF16;    // of x and w: F32, F16, BF16 or F8
  DType y_dtype = DType::kBF16;  // the same, or F32; of F8: BF16, F16 or F32
  // Of F8: y [m, n] = x_scales [m] w_scales [n] (x w^T) [m, n]. REQUIRES of it: n, k and both
  // strides whole 16s, memory on 16 bytes
  const float* x_scales = nullptr;
  const float* w_scales = nullptr;
  bool accumulate = false;
};

// Any thread, each with a stream and a workspace of its own; a call waits for another thread's.
class GemmLibrary {
 public:
  // kUnavailable naming the library and the places that were looked at.
  static Result<std::unique_ptr<GemmLibrary>> open();
  virtual ~GemmLibrary() = default;
  // Whether it multiplies F8 with a scale a row on both sides (cuBLAS 12.9 does).
  virtual bool has_float8() const = 0;

  // Starts the product on the stream. The algorithm is the library's choice, made once for each
  // (N, K, types, range of M); `workspace` is kWorkspaceBytes of device memory that the work on the
  // stream may use. Where the device is lost, or the library fails without a reason in the
  // arguments, the stream fails and y is of no meaning. REQUIRES: m, n, k > 0
  virtual void run(Stream& stream, const GemmArgs& args, std::byte* workspace) = 0;

  // Between the two, products on `stream`, of any number of rows, whose weights do not stay
  // in the cache are run by one of the library's candidates after the other, and timed: on the
  // model's own weights, between the kernels that stand beside them in a step. What is known when
  // the trial ends decides for all later calls; what is not complete goes on in the next trial.
  // One thread's at a time. REQUIRES: the stream is not being recorded; end_trial(): its work has
  // ended
  virtual void begin_trial(Stream& stream) = 0;
  virtual void end_trial() = 0;

  static constexpr int64_t kWorkspaceBytes = 32 << 20;  // what cuBLAS itself takes on Hopper
};

// The number of rows that stands for `m` when an algorithm is chosen: exact up to 64, then the next
// multiple of about an eighth of m, so that a server meets some 60 choices and not 8,192.
constexpr int64_t gemm_row_class(int64_t m) {
  int64_t grain = 1;
  while (m > 64 * grain) grain *= 2;
  grain *= grain > 1 ? 4 : 1;
  return (m + grain - 1) / grain * grain;
}

}  // namespace headrace
