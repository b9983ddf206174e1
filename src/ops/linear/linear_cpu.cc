// linear on the CPU: the reference, and the driver that stages x, deals row groups to threads and
// calls the tile kernels of an instruction set (cpu_tiles.inc).
#include "ops/linear/linear_cpu.h"

#include <algorithm>
#include <atomic>

#include "base/round_up.h"
#include "ops/linear/cpu_float.h"
#include "ops/linear/cpu_plan.h"

namespace headrace {
namespace {

constexpr int64_t kBlock = 32;
// A block whose largest magnitude is over this many times the row's root mean square of those gets
// 16 bits (docs/decisions/0012): 8 % of blocks, and the error of 8 bits is halved.
constexpr float kWideFrom = 1.6f;
// Columns below which waking a thread costs more (about 2 us) than it saves.
constexpr int64_t kSerialColumns = 25'000;

bool has_segment(const LinearWeight& weight, bool quantised) {
  return std::ranges::any_of(weight.segments(), [&](const LinearWeight::Segment& segment) {
    return is_quantised(segment.dtype) == quantised;
  });
}

constexpr int64_t kFloatRowUnitMax = 16;  // of kernels that take floats

// Of m rows.
int64_t quantised_bytes(int64_t m, int64_t k) {
  return m * (k / kBlock) * int64_t{sizeof(QuantisedBlock)};
}

// x as the tiles read it (LinearRange::x); either is null where no segment needs it.
struct StagedRows {
  QuantisedBlock* quantised = nullptr;
  const std::byte* block_floats = nullptr;  // for block types, where their kernels multiply floats
  StagedFloats floats;
};

// Rows [first, first + count) of x as a tile.
void quantise_tile(const ConstTensorView& x, int64_t first, int64_t count, const LinearCpuIsa& isa,
                   float wide_from, QuantisedBlock* tile) {
  for (int64_t r = 0; r < count; ++r) {
    isa.quantise_row(f32_row(x, first + r), x.columns(), wide_from, tile, r, count);
  }
}

QuantisedBlock* quantise_rows(OpContext& context, const LinearArgs& args, const LinearCpuIsa& isa,
                              const LinearCpuPlan& plan) {
  const int64_t m = args.x.rows(), k = args.x.columns(), tile_rows = plan.tile_rows;
  auto* quantised =
      reinterpret_cast<QuantisedBlock*>(context.workspace.take(quantised_bytes(m, k)));
  const int64_t tiles = (m + tile_rows - 1) / tile_rows;
  const float wide_from = args.weight->compute() == LinearCompute::kFastWide ? 0.0f : kWideFrom;
  const auto quantise_tiles = [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = t * tile_rows;
      const int64_t count = std::min(tile_rows, m - row);
      quantise_tile(args.x, row, count, isa, wide_from, quantised + row * (k / kBlock));
    }
  };
  if (m * k < kSerialColumns) {
    quantise_tiles(0, tiles);
  } else {
    context.device.pool().parallel_rows(tiles, 1, quantise_tiles);
  }
  return quantised;
}

StagedRows stage(OpContext& context, const LinearArgs& args, const LinearCpuKernels& kernels,
                 const LinearCpuPlan& plan) {
  StagedRows staged;
  if (has_segment(*args.weight, true)) {
    if (plan.floats != nullptr) {
      staged.block_floats = stage_rows(context, args.x, *plan.floats);
    } else {
      staged.quantised = quantise_rows(context, args, kernels.blocks, plan);
    }
  }
  staged.floats = stage_floats(context, args, kernels.floats);
  return staged;
}

// Of x; the first starts a tile, the last is one past.
struct RowRange {
  int64_t first, last;
};

RowRange all_rows(const LinearArgs& args) { return {0, args.x.rows()}; }

LinearRangeKernel block_kernel(const LinearCpuIsa& isa, LinearMethod method, DType dtype) {
  const LinearRangeKernel* kernels =
      method == LinearMethod::kPanels ? isa.panels->blocks : isa.blocks;
  return kernels[static_cast<size_t>(dtype) - static_cast<size_t>(DType::kQ8_0)];
}

// Threads' shares of a segment are multiples of so many groups.
int64_t share_unit(const LinearCpuKernels& kernels, LinearMethod method, DType dtype) {
  if (!is_quantised(dtype)) return group_multiple(kernels.floats, dtype);
  return method == LinearMethod::kPanels ? kernels.blocks.panels->groups : 1;
}

// Units of work in a piece: four to eight pieces a thread, in the number that all threads share out
// most evenly (15 pieces of 4 on two threads are 32 for one of them, 10 of 6 are 30).
int64_t piece_units(int64_t units, int64_t threads) {
  int64_t best = 1, best_share = units;
  for (int64_t pieces = threads * 8; pieces >= threads * 4; --pieces) {
    const int64_t piece = (units + pieces - 1) / pieces;
    const int64_t count = (units + piece - 1) / piece;
    const int64_t share = (count + threads - 1) / threads * piece;
    if (share < best_share) best = piece, best_share = share;
  }
  return best;
}

// Staged rows of x for block types, from `row` on, where a tile starts.
const void* rows_from(const StagedRows& staged, const LinearCpuPlan& plan, int64_t row, int64_t k) {
  if (plan.floats == nullptr) return staged.quantised + row * (k / kBlock);
  return staged.block_floats + row * staged_row_bytes(*plan.floats, k);
}

// Groups [first, last) of a segment against rows of x, of which floats take all, block of rows
// after block of rows.
void run_groups(const LinearArgs& args, const LinearCpuKernels& kernels, const LinearCpuPlan& plan,
                const StagedRows& staged, const LinearWeight::Segment& segment, int64_t first,
                int64_t last, RowRange rows) {
  if (first == last) return;
  if (!is_quantised(segment.dtype)) {
    return run_float_groups(args, kernels.floats, staged.floats, segment, first, last);
  }
  const int64_t k = args.x.columns();
  const LinearRangeKernel kernel = block_kernel(kernels.blocks, plan.method, segment.dtype);
  const int64_t column = segment.first_row + first * kLinearGroupRows;
  for (int64_t row = rows.first; row < rows.last; row += plan.row_block) {
    const LinearRange range{.weight = reinterpret_cast<const unsigned char*>(
                                segment.data + first * segment.group_bytes),
                            .group_count = last - first,
                            .group_bytes = segment.group_bytes,
                            .k = k,
                            .x = rows_from(staged, plan, row, k),
                            .row_count = std::min(plan.row_block, rows.last - row),
                            .y = f32_row(args.y, row) + column,
                            .y_stride = args.y.row_stride / int64_t{sizeof(float)},
                            .bias = args.bias == nullptr ? nullptr : args.bias + column,
                            .column_count = segment.row_count - first * kLinearGroupRows,
                            .accumulate = args.output == LinearOutput::kAccumulate};
    kernel(&range);
  }
}

// Pieces of `grain` groups by rows: a thread takes all pieces of its own rows first.
void run_row_shares(OpContext& context, const LinearArgs& args, const LinearCpuKernels& kernels,
                    const LinearCpuPlan& plan, const StagedRows& staged,
                    const LinearWeight::Segment& segment, int64_t grain) {
  ThreadPool& pool = context.device.pool();
  const int64_t m = args.x.rows(), shares = pool.thread_count();
  const int64_t tiles = (m + plan.tile_rows - 1) / plan.tile_rows;
  const int64_t pieces = (segment.group_count + grain - 1) / grain;
  const auto first_row = [&](int64_t share) {
    return std::min(m, tiles * share / shares * plan.tile_rows);
  };
  pool.parallel_rows(shares * pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t share = i / pieces, group = i % pieces * grain;
      run_groups(args, kernels, plan, staged, segment, group,
                 std::min(group + grain, segment.group_count),
                 {first_row(share), first_row(share + 1)});
    }
  });
}

// Groups of a weight that is not packed yet which a thread packs at a time: they stay in the
// second-level cache.
constexpr int64_t kUnpackedBytes = 256 << 10;
constexpr int64_t kShareUnitMax = 6;  // that share_unit() gives

int64_t piece_groups(const LinearWeight::Segment& segment) {
  const int64_t groups = std::max<int64_t>(kUnpackedBytes / segment.group_bytes, 1);
  return std::min(round_up(groups, kShareUnitMax), segment.group_count);
}

int64_t piece_bytes(const LinearWeight& weight) {
  int64_t bytes = 0;
  for (const auto& segment : weight.segments()) {
    bytes = std::max(bytes, piece_groups(segment) * segment.group_bytes);
  }
  return bytes;
}

// Each thread packs a piece to its own scratch memory and multiplies by it, until all is done.
void run_unpacked(OpContext& context, const LinearArgs& args, const LinearCpuKernels& kernels,
                  const LinearCpuPlan& plan, const StagedRows& staged) {
  const LinearWeight& weight = *args.weight;
  ThreadPool& pool = context.device.pool();
  const int64_t bytes = piece_bytes(weight);
  std::byte* const memory = context.workspace.take(bytes * pool.thread_count());
  for (const LinearWeight::Segment& segment : weight.segments()) {
    const int64_t groups = piece_groups(segment);
    std::atomic<int64_t> next{0};
    pool.run([&](int thread) {
      std::byte* const scratch = memory + thread * bytes;
      for (int64_t first; (first = next.fetch_add(groups)) < segment.group_count;) {
        const int64_t last = std::min(first + groups, segment.group_count);
        weight.pack_groups_to(segment, first, last, scratch);
        const int64_t rows = first * kLinearGroupRows;
        const LinearWeight::Segment piece{.dtype = segment.dtype,
                                          .first_row = segment.first_row + rows,
                                          .row_count = segment.row_count - rows,
                                          .group_count = last - first,
                                          .group_bytes = segment.group_bytes,
                                          .data = scratch};
        run_groups(args, kernels, plan, staged, piece, 0, piece.group_count, all_rows(args));
      }
    });
  }
}

}  // namespace

void linear_cpu_reference(OpContext& context, const LinearArgs& args) {
  const int64_t k = args.weight->k();
  Workspace::Mark mark(context.workspace);
  float* w = context.workspace.take_array<float>(k);
  for (int64_t n = 0; n < args.weight->n(); ++n) {
    args.weight->read_row(n, w);
    for (int64_t m = 0; m < args.x.rows(); ++m) {
      const float* x = f32_row(args.x, m);
      double sum = args.bias == nullptr ? 0.0 : args.bias[n];
      for (int64_t c = 0; c < k; ++c) sum += static_cast<double>(w[c]) * x[c];
      float& y = f32_row(args.y, m)[n];
      y = static_cast<float>(args.output == LinearOutput::kAccumulate ? y + sum : sum);
    }
  }
}

void linear_cpu_tiled(OpContext& context, const LinearArgs& args, const LinearCpuKernels& kernels) {
  Workspace::Mark mark(context.workspace);
  ThreadPool& pool = context.device.pool();
  const int threads = pool.thread_count();
  const LinearCpuSize size{args.x.rows(), args.weight->n(), args.weight->k()};
  const LinearCpuPlan plan = plan_linear_cpu(size, kernels.blocks, threads);
  const StagedRows staged = stage(context, args, kernels, plan);
  if (!args.weight->is_packed()) return run_unpacked(context, args, kernels, plan, staged);
  const auto segments = args.weight->segments();
  if (plan.deal == LinearDeal::kOneThread) {
    for (const auto& segment : segments)
      run_groups(args, kernels, plan, staged, segment, 0, segment.group_count, all_rows(args));
    return;
  }
  if (plan.deal == LinearDeal::kShares) {
    pool.run([&](int thread) {
      for (const auto& segment : segments) {
        const int64_t first = segment.group_count * thread / threads;
        const int64_t last = segment.group_count * (thread + 1) / threads;
        run_groups(args, kernels, plan, staged, segment, first, last, all_rows(args));
      }
    });
    return;
  }
  for (const auto& segment : segments) {
    const int64_t unit = share_unit(kernels, plan.method, segment.dtype);
    const int64_t grain = unit * piece_units((segment.group_count + unit - 1) / unit, threads);
    if (plan.deal == LinearDeal::kRowShares && is_quantised(segment.dtype)) {
      run_row_shares(context, args, kernels, plan, staged, segment, grain);
      continue;
    }
    pool.parallel_for(segment.group_count, grain, [&](int64_t first, int64_t last) {
      run_groups(args, kernels, plan, staged, segment, first, last, all_rows(args));
    });
  }
}

int64_t linear_cpu_workspace_bytes(int64_t m, const LinearWeight& weight) {
  constexpr int64_t kAlignment = 256;                                // of each piece
  int64_t bytes = weight.k() * int64_t{sizeof(float)} + kAlignment;  // the reference's one row
  int64_t staged = 0;
  if (has_segment(weight, true)) {
    staged += quantised_bytes(round_up(m, kFloatRowUnitMax), weight.k()) + kAlignment;
  }
  if (!weight.is_packed()) {
    staged += weight.device().pool().thread_count() * piece_bytes(weight) + kAlignment;
  }
  return std::max(bytes, staged + staged_float_bytes(m, weight));
}

}  // namespace headrace
