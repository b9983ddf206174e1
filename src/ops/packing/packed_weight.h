// A linear weight as a device's kernels want it: packed groups of rows, or on CUDA a dense matrix
// [N, K] of the model's activation type. Packed weights are re-laid out once at load, 16 output
// rows side by side. On the CPU a SIMD lane is an output row then and no sum ever crosses lanes; on
// CUDA the 16 rows are one side of a warp's matrix product. The CPU packs all types, CUDA block
// types alone: the same bytes. FP8 (CUDA) is a dense matrix, too, of e4m3 numbers, with an f32
// scale a row behind it: the largest magnitude of the row / 448 (float8_row_scale()), or what the
// file says.
//
// Layout of packed rows. A segment is a run of stacked rows of one type in groups of 16; a last
// group that is not full repeats its last row. One group of K columns is
//   F32, F16        [K][16] elements
//   BF16            [K/2][16] pairs of columns, K padded to 32 with zeros: what vdpbf16ps and AMX
//                   tiles take as it lies
//   block types     [K/32][D][16 rows][4] bytes of quants, then per block [16] f16 scales, [16] f16
//                   minima where the type has them, and of types with scales in parts an integer
//                   scale a part as [parts][16] bytes (of Q2_K one byte has scale and minimum, of
//                   Q4_K and Q5_K 12 bytes have 8 of both: PartScales). As many bytes as in the
//                   file, but for Q3_K and IQ4_XS, whose scales of 6 bits are whole bytes.
// The quants of 32 columns are D dwords a row, D the bits of a quant. Quad j is columns 4j to 4j +
// 3 of the 32, a byte each:
//   8 bits  dword j: q + 128
//   4 bits  dword j % 4: quads 0 to 3 in the low nibbles, 4 to 7 in the high ones
//   2 bits  dword j / 4, bits 2 (j % 4)
//   and above 4 or 2 bits: the fifth or third bit as one dword, quad j at bit j; the fifth and
//   sixth as two dwords, as for 2 bits.
// packed_format.h has each type's numbers. Groups and both parts of a group start on 64 bytes (the
// second part of a group on 64 because the first is a multiple of 64).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "tensor/device.h"
#include "tensor/row_reader.h"
#include "tensor/tensor_view.h"

namespace headrace {

class Uploader;  // tensor/uploader.h

inline constexpr int64_t kLinearGroupRows = 16;

// One matrix of a stack.
struct LinearSource {
  ConstTensorView weight;              // [N_i, K]; F32, F16, BF16 or a block type
  std::span<const int32_t> row_order;  // empty: as is; else output row r is source row row_order[r]
  // Called with rows [first, last) of `weight` that pack() does not read again, from any of its
  // threads; at most once a row, and for large matrices in their own order only. Of a weight that
  // is packed later also at each of its uses. May be empty.
  std::function<void(int64_t first, int64_t last)> done = {};
  std::shared_ptr<const void> hold = nullptr;  // let go when the matrix has been read
  // A block type that rows of a float type are quantised to (quantised_row.h) while they are
  // packed, or (on a CPU) BF16; LinearCompute::kFast or kFloat16. Other rows stay what they are.
  // REQUIRES: whole blocks of it a row
  // Of kF8, on CUDA, all columns and all rows of the stack together must be whole 16s, or rows stay
  // what they are.
  std::optional<DType> quantise_to = {};
  bool unpack = false;  // CUDA: rows of a block type become rows of a matrix

  // Of the matrix that is made.
  int64_t rows() const {
    return row_order.empty() ? weight.rows() : static_cast<int64_t>(row_order.size());
  }
  // Not null: makes the rows, of which `weight` has type and shape but no memory. They are its rows
  // from `first_row` on, of these the columns from `first_column` on.
  std::shared_ptr<const RowReader> reader = nullptr;
  int64_t first_row = 0, first_column = 0;

  // Rows `rows` of `weight`, dense. For a reader, and for any weight where a copy is wanted.
  void read(std::span<const int64_t> rows, std::byte* out) const;
};

enum class LinearCompute {
  kFast,  // keep the source's type; block types multiply integers on the CPU (linear.h); on CUDA
          // float types become BF16
  kFastWide,  // CPU: the same with activations of 16 bits throughout; CUDA: kFast
  kFloat32,   // dequantise at load, all arithmetic in fp32
  kFloat16,   // CUDA alone: as kFast, with F16
};

// Owns the packed bytes of one or more matrices stacked along N (merged QKV, gate and up).
// Immutable once packed, so any number of threads may read it. Move-only.
class LinearWeight {
 public:
  struct Segment {
    DType dtype;
    int64_t first_row;      // of the stack's N
    int64_t row_count;      // without padding
    int64_t group_count;    // row_count / 16, rounded up
    int64_t group_bytes;    // a multiple of 64
    const std::byte* data;  // on the device; null: is_packed() is not
  };

  LinearWeight() = default;

  // Errors: kInvalidArgument (no rows, sources that differ in K), kUnsupported (type or device),
  // kExhausted (memory), kUnavailable (CUDA: no cuBLASLt). Runs on the device's pool; on CUDA rows
  // are converted or packed there and stream through page-locked memory. A stack is packed on CUDA
  // if all of its matrices are to be. REQUIRES: 0 <= row_order[r] < N_i
  static Result<LinearWeight> pack(Device& device, std::span<const LinearSource> sources,
                                   LinearCompute compute);
  // On CUDA, starts the upload only: the sources' memory is read, and the weight may be used, until
  // and from when uploader.finish() has returned. No look at cuBLASLt. On the CPU, as above.
  static Result<LinearWeight> start_pack(Device& device, Uploader& uploader,
                                         std::span<const LinearSource> sources,
                                         LinearCompute compute);

  // pack() without the packing: `packed` is what packed() gave for these sources before, and
  // outlives the weight. Their memory is not read. Empty: it has not the size of it. REQUIRES: a
  // CPU
  static Result<std::optional<LinearWeight>> restore(Device& device,
                                                     std::span<const LinearSource> sources,
                                                     LinearCompute compute,
                                                     std::span<const std::byte> packed);
  // A weight that is packed later, by pack_now(). Until then `linear` packs what it multiplies, a
  // piece at a time, to scratch memory (the same bits): where finding memory costs more than
  // packing does, a first step is done sooner. The sources' memory is read until it is packed;
  // `when_packed`, which may be empty, is called then. Errors as of pack().
  // REQUIRES: a CPU; nothing to be quantised
  static Result<LinearWeight> defer(Device& device, std::span<const LinearSource> sources,
                                    LinearCompute compute,
                                    std::function<void(const LinearWeight&)> when_packed);
  bool is_packed() const { return unpacked_ == nullptr; }
  // Takes address space for it, whose memory pack_now() finds. (Not in defer(): vectors that are
  // allocated between matrices would each find a huge page.) Errors: kExhausted
  Status reserve();
  // REQUIRES: reserved; nobody reads the weight meanwhile
  void pack_now();
  // Packs groups [first, last) of `segment` to `out`. Any thread. REQUIRES: !is_packed()
  void pack_groups_to(const Segment& segment, int64_t first, int64_t last, std::byte* out) const;

  // All segments, one after the other. REQUIRES: packed, on the CPU
  std::span<const std::byte> packed() const {
    return {segments_.front().data, static_cast<size_t>(packed_bytes())};
  }

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  LinearCompute compute() const { return compute_; }
  int64_t packed_bytes() const { return buffer_.size(); }
  Device& device() const { return *buffer_.device(); }
  bool on_cpu() const { return device().kind() == DeviceKind::kCpu; }
  std::span<const Segment> segments() const { return segments_; }  // none of a matrix
  // Of most of its rows.
  DType main_dtype() const;
  // The matrices that were stacked, as weights of their own that read this one's memory; none
  // where a matrix does not start a group of 16 rows. For measurements of what stacking is worth
  // (OpHooks::unfused); it is here because only this class knows where its segments lie.
  // REQUIRES: is_packed()
  std::vector<LinearWeight> parts() const;
  // Whether the stack is dense, of this type. CUDA's alone are.
  bool is_matrix() const { return n_ > 0 && segments_.empty(); }
  bool is_matrix_of(DType dtype) const { return is_matrix() && matrix_.dtype == dtype; }
  // [n()], on the device, of a matrix of kF8; null of others.
  const float* row_scales() const { return row_scales_; }
  // [n(), k()]. REQUIRES: is_matrix()
  ConstTensorView matrix() const {
    CHECK(is_matrix());
    return matrix_;
  }
  // A matrix in memory of others, which outlives the weight.
  static LinearWeight matrix_at(Device& device, const ConstTensorView& matrix);

  // Writes the k() values of row `row` of the stack, each what its type says it is, rounded to f32.
  // Slow and plain: for reference kernels and embedding rows. REQUIRES: 0 <= row < n(), on the CPU
  void read_row(int64_t row, float* out) const;

 private:
  // Everything but the memory, of which it says how much.
  static Result<std::pair<LinearWeight, int64_t>> plan_groups(std::span<const LinearSource> sources,
                                                              LinearCompute compute);
  static Result<LinearWeight> pack_groups(Device& device, std::span<const LinearSource> sources,
                                          LinearCompute compute);
  void fill(std::span<const LinearSource> sources);
  struct Unpacked;  // where its rows lie
  static Result<LinearWeight> pack_on_cuda(Device& device, std::span<const LinearSource> sources,
                                           LinearCompute compute);
  // REQUIRES of both: a CUDA device, sources that pack() has checked. The first: matrix_weight.cc
  static Result<LinearWeight> start_matrix(Device& device, Uploader& uploader,
                                           std::span<const LinearSource> sources,
                                           LinearCompute compute);
  // float8_weight.cc
  static Result<LinearWeight> start_float8(Device& device, Uploader& uploader,
                                           std::span<const LinearSource> sources,
                                           LinearCompute compute);
  static Result<LinearWeight> start_groups(Device& device, Uploader& uploader,
                                           std::span<const LinearSource> sources,
                                           LinearCompute compute);

  int64_t n_ = 0;
  int64_t k_ = 0;
  LinearCompute compute_ = LinearCompute::kFast;
  std::vector<Segment> segments_;      // none of a matrix
  std::vector<int64_t> part_rows_;     // of the matrices that were stacked; none of a matrix
  ConstTensorView matrix_;             // CUDA, where there are no segments
  const float* row_scales_ = nullptr;  // CUDA, of FP8
  Buffer buffer_;
  std::shared_ptr<const Unpacked> unpacked_;  // CPU; null: packed
};

}  // namespace headrace
