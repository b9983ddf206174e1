// The kernel of gemv.h.
//   x [M, K] of T, 16 bits; W [N, K] of T or FP8; y [M, N] of T or f32; the norm's weights, the
//   bias and the scales of rows of FP8 f32; sums in f32
// Beside FP8 both are multiplied in F16: one instruction makes a pair of it of two bytes, where
// BF16 takes five. x in BF16 becomes F16 in shared memory (f16_range.cuh).
// A block has some tiles of 8 rows of W; its warps share their columns in turns of 128 bytes. Each
// warp keeps kAhead steps of W (1 KB each) on their way to its part of a ring in shared memory,
// from one tile into the next, and asks for another as soon as one is multiplied. A lane reads what
// the same lane has asked for, so that nobody waits for anybody. x is whole in shared memory,
// normalised once. Sums of the warps meet in shared memory once a round of tiles.
//
// Loads to registers in place of the ring would share a scoreboard: waiting for the oldest would be
// waiting for all.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "gpu/f16_range.cuh"
#include "gpu/float8.cuh"
#include "gpu/mma.cuh"
#include "gpu/overlapped_launch.cuh"
#include "gpu/reduce.cuh"
#include "gpu/thread_copy.cuh"
#include "gpu/tma.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/gemv_layout.h"
#include "ops/rows/activation_cuda.cuh"

namespace headrace::gpu {

template <class T, class W>
struct GemvArguments {
  RowsOf<const T> x;
  RowsOf<const W> weight;
  void* y;
  int64_t y_stride;     // elements
  const float* norm;    // [K], or null
  const float* bias;    // [N], or null
  const float* scales;  // [N] of FP8, else null
  float eps;
  int32_t m, k;
  int32_t n_out;                    // columns of y; gated: up's rows of W begin there
  int32_t share, blocks_with_more;  // tiles of every block; the first have one more
  int32_t round_tiles;
  int32_t windows, window_steps;  // of a warp
  Activation activation;
  bool gated, accumulates, y_is_float;
};

template <int kSteps, int kTiles, bool kNorm>
struct GemvShape {
  static constexpr int kAhead = kSteps;
  static constexpr int kColumnTiles = kTiles;  // of four rows of x
  static constexpr bool kNormed = kNorm;
  static constexpr bool kWindowed = gemv_may_be_windowed(kGemvXRows * kTiles, kNorm);
};

// The next kernel may start, where a block of this one has ended, when each block has so many steps
// of a warp left. Earlier its first loads delay this one's last, later nobody loads for a while.
constexpr int kGemvLead = 12;

// One warp's way through its block's part of W: its steps of a tile, of the next, and where x comes
// in windows the tiles' steps of the next window.
template <class T, class W, class Shape>
struct GemvCursor {
  static constexpr int kColumns = gemv_columns(sizeof(W));

  const W* low;        // of this lane, in the first four rows of the tile
  const W* high;       // in the last four
  int32_t tile, left;  // steps of it
  int32_t from;        // the window's first step

  __device__ __forceinline__ void begin(const GemvArguments<T, W>& args, int32_t first_tile,
                                        int32_t first_step, int32_t steps, int warp, int lane) {
    tile = first_tile;
    from = first_step;
    left = Shape::kWindowed ? min(args.window_steps, steps - from) : steps;
    // Rows past the end repeat the last: their sums are not stored.
    const int32_t row = tile * (args.gated ? kGemvHalfRows : kGemvTileRows) + gemv_row(lane);
    const int32_t first = min(row, args.n_out - 1);
    const int32_t second =
        args.gated ? first + args.n_out : min(row + kGemvHalfRows, args.n_out - 1);
    const int32_t step = (Shape::kWindowed ? from * kGemvWarps : 0) + warp;
    const int32_t column = step * kColumns + gemv_byte(lane) / static_cast<int>(sizeof(W));
    low = args.weight.row(first) + column;
    high = args.weight.row(second) + column;
  }
  __device__ __forceinline__ void advance(const GemvArguments<T, W>& args, int32_t first_tile,
                                          int32_t end_tile, int32_t steps, int warp, int lane) {
    if (--left > 0) {
      low += kGemvWarps * kColumns;
      high += kGemvWarps * kColumns;
    } else if (!Shape::kWindowed || tile + 1 < end_tile) {
      begin(args, tile + 1, from, steps, warp, lane);
    } else {
      begin(args, first_tile, from + args.window_steps, steps, warp, lane);
    }
  }
};

struct GemvBarriers {
  Barrier norm;                  // the norm's weights
  Barrier rows[2];               // x, or its even and odd windows
  bool beyond[2][kGemvRowsMax];  // whether a row of a window is smaller than it was
};

template <class T, class W, class Shape>
class GemvBlock {
  static constexpr int kWarps = kGemvWarps, kThreads = kGemvThreads;
  static constexpr bool kEightBits = sizeof(W) == 1;
  using Operand = std::conditional_t<kEightBits, __half, T>;
  static constexpr bool kConverts = !std::is_same_v<Operand, T>;  // x, to Operand
  static constexpr int kColumns = gemv_columns(sizeof(W)), kXLine = gemv_x_line(sizeof(W));
  static constexpr int kAhead = Shape::kAhead, kColumnTiles = Shape::kColumnTiles;
  static constexpr int kRows = kGemvXRows * kColumnTiles;
  static constexpr int kPieceElements = kAccessBytes / static_cast<int>(sizeof(T));
  using Piece = Vector<T, kPieceElements>;

 public:
  __device__ __forceinline__ GemvBlock(const GemvArguments<T, W>& args, std::byte* shared,
                                       GemvBarriers& barriers)
      : args_(args),
        barriers_(barriers),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / kWarpThreads),
        lane_(thread_ % kWarpThreads),
        row_bytes_(windows() > 1 ? args.window_steps * kWarps * kXLine
                                 : args.k * static_cast<int32_t>(sizeof(T))),
        ring_(shared + gemv_ring_offset(0, warp_, lane_)),
        x_(shared + gemv_ring_offset(kAhead, 0, 0)),
        squares_(reinterpret_cast<float*>(x_ + (windows() > 1 ? 2 : 1) * args.m * row_bytes_)),
        norm_(squares_ + (Shape::kNormed ? kWarps * kGemvRowsMax : 0)),
        sums_(norm_) {
    const auto block = static_cast<int32_t>(blockIdx.x);
    first_tile_ = block * args.share + min(block, args.blocks_with_more);
    end_tile_ = first_tile_ + args.share + (block < args.blocks_with_more ? 1 : 0);
    steps_ = (args.k / kColumns - warp_ + kWarps - 1) / kWarps;
    total_ = (end_tile_ - first_tile_) * steps_;
    load_.begin(args_, first_tile_, 0, steps_, warp_, lane_);
  }

  // What no kernel writes, W and the norm's weights: before the kernels before this have ended.
  __device__ __forceinline__ void ask_early() {
    if (thread_ == 0) {
      barriers_.norm.init(1);
      barriers_.rows[0].init(1);
      if constexpr (Shape::kWindowed) barriers_.rows[1].init(1);
      if constexpr (kConverts) clear_beyond(0), clear_beyond(1);
      fence_barrier_init();
      if constexpr (Shape::kNormed) {
        const auto bytes = static_cast<uint32_t>(args_.k) * 4;
        barriers_.norm.arrive_expecting(bytes);
        copy_bytes(norm_, args_.norm, bytes, barriers_.norm);
      }
    }
#pragma unroll 1
    for (int32_t i = 0; i < kAhead; ++i) ask(i, i);
    __syncthreads();  // barriers are there
  }
  __device__ __forceinline__ void take_rows() {
    if (thread_ == 0) {
      for (int32_t window = 0; window < min(windows(), 2); ++window) ask_for_window(window);
    }
    first_ = beside(thread_, first_tile_, min(args_.round_tiles, end_tile_ - first_tile_));
    if constexpr (Shape::kNormed) normalise();
  }

  __device__ __forceinline__ void multiply() {
    const int32_t trigger = max(total_ - kGemvLead, 0);
    const std::byte* const x_first = x_ + warp_ * kXLine;
    int32_t x_row[kColumnTiles];
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      x_row[c] = min(kGemvXRows * c + gemv_row(lane_), args_.m - 1) * row_bytes_;
    }
    int slot = 0, buffer = 0, i = 0;
#pragma unroll 1
    for (int32_t first = first_tile_; first < end_tile_; first += args_.round_tiles) {
      const int32_t tiles = min(args_.round_tiles, end_tile_ - first);
#pragma unroll 1
      for (int32_t window = 0; window < windows(); ++window) {
        if (first == first_tile_) take_window(window);
        const int32_t steps = Shape::kWindowed
                                  ? min(args_.window_steps, steps_ - window * args_.window_steps)
                                  : steps_;
#pragma unroll 1
        for (int32_t tile = 0; tile < tiles; ++tile) {
          float sums[kColumnTiles][4] = {};
          const std::byte* x_at = x_first + window % 2 * args_.m * row_bytes_;
#pragma unroll 1
          for (int32_t step = 0; step < steps; ++step, ++i, x_at += kWarps * kXLine) {
            if (i == trigger) let_next_kernel_start();
            wait_for_copies_but<kAhead - 1>();
            add_products(sums, slot, x_at, x_row);
            ask(slot, i + kAhead);
            if (++slot == kAhead) slot = 0;
          }
          leave_sums(sums, tile, buffer, window);
        }
        if (window + 2 >= windows()) continue;
        __syncthreads();
        if (thread_ == 0) {
          if constexpr (kConverts) clear_beyond(window % 2);
          ask_for_window(window + 2);
        }
      }
      __syncthreads();
      store(first, tiles, buffer);
      buffer ^= 1;
    }
  }

 private:
  // What is added to a sum: there before the product is.
  struct Beside {
    float bias = 0.0f, up_bias = 0.0f, before = 0.0f;
    float scale = 1.0f, up_scale = 1.0f;
  };

  __device__ __forceinline__ int32_t windows() const {
    if constexpr (!Shape::kWindowed) return 1;
    return args_.windows;
  }
  // One thread.
  __device__ __forceinline__ void ask_for_window(int32_t window) const {
    const int32_t before = window * row_bytes_;
    const auto bytes =
        static_cast<uint32_t>(min(row_bytes_, args_.k * static_cast<int32_t>(sizeof(T)) - before));
    Barrier& arrived = barriers_.rows[window % 2];
    arrived.arrive_expecting(static_cast<uint32_t>(args_.m) * bytes);
    std::byte* to = x_ + window % 2 * args_.m * row_bytes_;
#pragma unroll 1
    for (int32_t row = 0; row < args_.m; ++row) {
      copy_bytes(to + row * row_bytes_,
                 reinterpret_cast<const std::byte*>(args_.x.row(row)) + before, bytes, arrived);
    }
  }

  // Once a window; rows that are normalised are what products take already.
  __device__ __forceinline__ void take_window(int32_t window) const {
    barriers_.rows[window % 2].wait(window / 2 % 2);
    if constexpr (kConverts && !Shape::kNormed) convert(window);
  }
  // Of a row in a window: the last one may be short, and has what was there before behind it.
  __device__ __forceinline__ int32_t pieces_of(int32_t window) const {
    const int32_t of_window = row_bytes_ / kAccessBytes;
    return min(of_window, args_.k / kPieceElements - window * of_window);
  }
  // x in place.
  __device__ __forceinline__ void convert(int32_t window) const {
    const int32_t pieces = pieces_of(window);
    std::byte* const from = x_ + window % 2 * args_.m * row_bytes_;
#pragma unroll 1
    for (int32_t i = thread_; i < args_.m * pieces; i += kThreads) {
      const int32_t row = i / pieces;
      T* const at = reinterpret_cast<T*>(from + row * row_bytes_ + i % pieces * kAccessBytes);
      store_operands(Piece::load(at), at, 1.0f, barriers_.beyond[window % 2][row]);
    }
    __syncthreads();
    make_smaller(window, [](const Piece& piece, int, int32_t) { return piece; });
  }
  // Rows that have no place in F16 again, from where they came; of(piece, row, its number in the
  // row) is what products take.
  template <class Of>
  __device__ __forceinline__ void make_smaller(int32_t window, const Of& of) const {
    bool again = false;
    const int32_t first = window * row_bytes_ / kAccessBytes, pieces = pieces_of(window);
#pragma unroll 1
    for (int row = 0; row < args_.m; ++row) {
      if (!barriers_.beyond[window % 2][row]) continue;
      again = true;
      std::byte* const to = x_ + (window % 2 * args_.m + row) * row_bytes_;
#pragma unroll 1
      for (int32_t i = thread_; i < pieces; i += kThreads) {
        bool beyond;  // nothing is any more
        const Piece piece = Piece::load(args_.x.row(row) + (first + i) * kPieceElements);
        store_operands(of(piece, row, i), reinterpret_cast<T*>(to + i * kAccessBytes), kF16Smaller,
                       beyond);
      }
    }
    fence_async_proxy();  // the copy engine writes here again
    if (again) __syncthreads();
  }
  __device__ static __forceinline__ void store_operands(const Piece& piece, T* at, float factor,
                                                        bool& beyond) {
    if constexpr (kConverts) {
      Vector<Operand, kPieceElements> operands;
#pragma unroll
      for (int e = 0; e < kPieceElements; ++e) {
        const float x = to_float(piece.values[e]) * factor;
        if (beyond_f16(x)) beyond = true;
        operands.values[e] = from_float<Operand>(x);
      }
      operands.store(reinterpret_cast<Operand*>(at));
    } else {
      piece.store(at);
    }
  }
  __device__ __forceinline__ void clear_beyond(int buffer) const {
    for (bool& beyond : barriers_.beyond[buffer]) beyond = false;
  }

  // Step `number` of all, if there is one; a group of copies in any case.
  __device__ __forceinline__ void ask(int slot, int32_t number) {
    if (number < total_) {
      std::byte* to = ring_ + gemv_ring_offset(slot, 0, 0);
      copy_access(to, load_.low);
      copy_access(to + kGemvLoadBytes, load_.high);
      load_.advance(args_, first_tile_, end_tile_, steps_, warp_, lane_);
    }
    end_group_of_copies();
  }
  __device__ __forceinline__ void add_products(float (&sums)[kColumnTiles][4], int slot,
                                               const std::byte* x_at,
                                               const int32_t (&x_row)[kColumnTiles]) const {
    const std::byte* from = ring_ + gemv_ring_offset(slot, 0, 0);
    const uint4 low = *reinterpret_cast<const uint4*>(from);
    const uint4 high = *reinterpret_cast<const uint4*>(from + kGemvLoadBytes);
    if constexpr (kEightBits) {
      return add_eight_bit_products(sums, low, high, x_at, x_row);
    }
    const uint32_t even[4] = {low.x, high.x, low.y, high.y};
    const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const uint4 x = load_x(x_at + x_row[c], 0);
      multiply_add<Operand>(sums[c], even, x.x, x.y);
      multiply_add<Operand>(sums[c], odd, x.z, x.w);
    }
  }
  __device__ __forceinline__ uint4 load_x(const std::byte* line, int access) const {
    return *reinterpret_cast<const uint4*>(line + gemv_x_byte(lane_, sizeof(W), access));
  }
  // 16 columns of a row: two products of the first eight, two of the others.
  __device__ __forceinline__ void add_eight_bit_products(
      float (&sums)[kColumnTiles][4], const uint4& low, const uint4& high, const std::byte* x_at,
      const int32_t (&x_row)[kColumnTiles]) const {
    const uint32_t lows[4] = {low.x, low.y, low.z, low.w};
    const uint32_t highs[4] = {high.x, high.y, high.z, high.w};
    const bool turned = lane_ / 4 % 2 == 1;
    uint4 x[kColumnTiles][2];
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const uint4 first = load_x(x_at + x_row[c], 0), second = load_x(x_at + x_row[c], 1);
      x[c][0] = turned ? second : first;
      x[c][1] = turned ? first : second;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint2 of_low = from_e4m3<Operand>(lows[j]);
      const uint2 of_high = from_e4m3<Operand>(highs[j]);
      const uint32_t weights[4] = {of_low.x, of_high.x, of_low.y, of_high.y};
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
        const uint4& from = x[c][j / 2];
        multiply_add<Operand>(sums[c], weights, j % 2 == 0 ? from.x : from.z,
                              j % 2 == 0 ? from.y : from.w);
      }
    }
  }

  // As rms_norm. Row by row would be one after the other: the sums of all rows go on side by side.
  __device__ __forceinline__ void normalise() {
    barriers_.rows[0].wait(0);
    const int32_t pieces = args_.k / kPieceElements;
    float squares[kRows] = {};
#pragma unroll 1
    for (int32_t i = thread_; i < pieces; i += kThreads) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (row >= args_.m) break;
        const Piece value = Piece::load(piece(row, i));
#pragma unroll
        for (int e = 0; e < kPieceElements; ++e) {
          const float x = to_float(value.values[e]);
          squares[row] += x * x;
        }
      }
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      squares[row] = warp_sum(squares[row]);
      if (lane_ == 0) squares_[row * kWarps + warp_] = squares[row];
    }
    __syncthreads();
    float factors[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += squares_[row * kWarps + warp];
      factors[row] = rsqrtf(sum / static_cast<float>(args_.k) + args_.eps);
    }
    barriers_.norm.wait(0);
#pragma unroll 1
    for (int32_t i = thread_; i < pieces; i += kThreads) {
      const auto weights = Vector<float, kPieceElements>::load(norm_ + i * kPieceElements);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (row >= args_.m) break;
        Piece value = Piece::load(piece(row, i));
#pragma unroll
        for (int e = 0; e < kPieceElements; ++e) {
          value.values[e] =
              from_float<T>(to_float(value.values[e]) * factors[row] * weights.values[e]);
        }
        store_operands(value, piece(row, i), 1.0f, barriers_.beyond[0][row]);
      }
    }
    __syncthreads();
    if constexpr (kConverts) {
      make_smaller(0, [&](Piece value, int row, int32_t i) {
        const auto weights = Vector<float, kPieceElements>::load(norm_ + i * kPieceElements);
        float factor = 0.0f;
#pragma unroll
        for (int of = 0; of < kRows; ++of) factor = of == row ? factors[of] : factor;
#pragma unroll
        for (int e = 0; e < kPieceElements; ++e) {
          value.values[e] = from_float<T>(to_float(value.values[e]) * factor * weights.values[e]);
        }
        return value;
      });
    }
  }
  __device__ __forceinline__ T* piece(int32_t row, int32_t i) const {
    return reinterpret_cast<T*>(x_ + row * row_bytes_ + i * kAccessBytes);
  }

  __device__ __forceinline__ int32_t out_rows() const {
    return args_.gated ? kGemvHalfRows : kGemvTileRows;
  }
  __device__ __forceinline__ float* sums_of(int buffer) const {
    return sums_ +
           buffer * gemv_sum_index(kWarps, 0, args_.round_tiles * kGemvTileRows, 0, args_.m);
  }

  __device__ __forceinline__ void leave_sums(const float (&sums)[kColumnTiles][4], int32_t tile,
                                             int buffer, int32_t window) {
    float* to = sums_of(buffer);
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const bool odd = gemv_sum(lane_) == 1;
      float of_low = odd ? sums[c][1] : sums[c][0];
      float of_high = odd ? sums[c][3] : sums[c][2];
      of_low += __shfl_xor_sync(0xffffffffu, of_low, 4);
      of_high += __shfl_xor_sync(0xffffffffu, of_high, 4);
      const int x_row = kGemvXRows * c + gemv_sum_x_row(lane_);
      const int row = tile * kGemvTileRows + (odd ? kGemvHalfRows : 0) + gemv_row(lane_);
      if (x_row >= args_.m) continue;
      float& sum =
          to[gemv_sum_index(warp_, row, args_.round_tiles * kGemvTileRows, x_row, args_.m)];
      float more = odd ? of_high : of_low;
      if (kConverts && barriers_.beyond[window % 2][x_row]) more *= kF16Larger;
      sum = window > 0 ? sum + more : more;
    }
  }

  // Output `i` of a round: columns of y side by side.
  __device__ __forceinline__ Beside beside(int32_t i, int32_t first_tile, int32_t tiles) const {
    Beside result;
    const int32_t rows = tiles * out_rows();
    const int32_t row = i / rows, column = first_tile * out_rows() + i % rows;
    if (row >= args_.m || column >= args_.n_out) return result;
    if (args_.bias != nullptr) {
      result.bias = args_.bias[column];
      if (args_.gated) result.up_bias = args_.bias[args_.n_out + column];
    }
    if constexpr (kEightBits) {
      result.scale = args_.scales[column];
      if (args_.gated) result.up_scale = args_.scales[args_.n_out + column];
    }
    if (args_.accumulates) {
      const int64_t at = row * args_.y_stride + column;
      result.before = args_.y_is_float ? static_cast<const float*>(args_.y)[at]
                                       : to_float(static_cast<const T*>(args_.y)[at]);
    }
    return result;
  }
  __device__ __forceinline__ float total(const float* sums, int row, int x_row) const {
    const int32_t rows = args_.round_tiles * kGemvTileRows;
    float sum = sums[gemv_sum_index(0, row, rows, x_row, args_.m)];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      sum += sums[gemv_sum_index(warp, row, rows, x_row, args_.m)];
    }
    return sum;
  }
  __device__ static __forceinline__ float scaled(float sum, float scale) {
    return kEightBits ? sum * scale : sum;
  }
  __device__ __forceinline__ void store(int32_t first_tile, int32_t tiles, int buffer) {
    const float* sums = sums_of(buffer);
    const int32_t rows = tiles * out_rows();
#pragma unroll 1
    for (int32_t i = thread_; i < rows * args_.m; i += kThreads) {
      const bool known = first_tile == first_tile_ && i < kThreads;
      const Beside more = known ? first_ : beside(i, first_tile, tiles);
      const int32_t row = i / rows, of = i % rows, column = first_tile * out_rows() + of;
      if (column >= args_.n_out) continue;
      float value;
      if (args_.gated) {
        const int32_t gate = of / kGemvHalfRows * kGemvTileRows + of % kGemvHalfRows;
        const float gate_sum = scaled(total(sums, gate, row), more.scale);
        const float up_sum = scaled(total(sums, gate + kGemvHalfRows, row), more.up_scale);
        value = activated(args_.activation, gate_sum + more.bias) * (up_sum + more.up_bias);
      } else {
        value = scaled(total(sums, of, row), more.scale) + more.bias;
      }
      value += more.before;
      const int64_t at = row * args_.y_stride + column;
      if (args_.y_is_float) {
        static_cast<float*>(args_.y)[at] = value;
      } else {
        static_cast<T*>(args_.y)[at] = from_float<T>(value);
      }
    }
  }

  const GemvArguments<T, W>& args_;
  GemvBarriers& barriers_;
  const int thread_, warp_, lane_;
  const int32_t row_bytes_;  // of x, or of a window of it
  std::byte* const ring_;    // of this lane
  std::byte* const x_;
  float* const squares_;
  float* const norm_;  // until x is normalised, then sums
  float* const sums_;
  int32_t first_tile_, end_tile_, steps_, total_;
  GemvCursor<T, W, Shape> load_;
  Beside first_;
};

template <class T, class W, class Shape>
__global__ void __launch_bounds__(kGemvThreads, 1)
    linear_gemv(const __grid_constant__ GemvArguments<T, W> args) {
  extern __shared__ __align__(128) std::byte dynamic[];
  __shared__ GemvBarriers barriers;
  GemvBlock<T, W, Shape> block(args, dynamic, barriers);
  block.ask_early();
  wait_for_earlier_kernels();  // in every thread that reads or overwrites what they wrote
  block.take_rows();
  block.multiply();
}

}  // namespace headrace::gpu
