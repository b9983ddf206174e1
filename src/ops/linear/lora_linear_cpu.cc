#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "ops/linear/lora_linear.h"
#include "ops/linear/lora_linear_rows.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

void add_factor(const LoraLinearArgs& args, int64_t row, const LoraFactor& factor) {
  const float* const x = f32_row(args.x, row);                  // [K]
  float* const y = f32_row(args.y, row) + factor.first_column;  // [N']
  std::vector<float> a(static_cast<size_t>(factor.a.columns()));
  std::vector<float> panel(static_cast<size_t>(factor.b.columns()));
  std::vector<double> t(static_cast<size_t>(factor.a.rows()));  // [R]
  for (size_t r = 0; r < t.size(); ++r) {
    dequantise_row(factor.a, static_cast<int64_t>(r), a.data());
    for (size_t k = 0; k < a.size(); ++k) t[r] += double{x[k]} * a[k];
  }
  for (int64_t n = 0; n < factor.columns; ++n) {
    if (n % kLoraPad == 0) dequantise_row(factor.b, n / kLoraPad, panel.data());
    double delta = 0;
    for (size_t r = 0; r < t.size(); ++r) {
      delta += t[r] * panel[r * kLoraPad + static_cast<size_t>(n % kLoraPad)];
    }
    y[n] = static_cast<float>(y[n] + factor.scale * delta);
  }
}

void reference(OpContext&, const LoraLinearArgs& args) {
  for (const LoraGroup& group : args.groups) {
    for (const int32_t row : group.rows) {
      for (const LoraFactor& factor : group.factors) {
        add_factor(args, row - args.first_row, factor);
      }
    }
  }
}

constexpr int64_t kRowsOfUnit = 32;      // they share what is read of a factor
constexpr int64_t kRanksOfUnit = 4;      // rows of A
constexpr int64_t kColumnsOfUnit = 256;  // of y
// Multiplications that are worth a range of their own, about 5 us.
constexpr int64_t kProductsOfRange = 1 << 17;

// Rows of a group by a part of one of its factors.
struct LoraUnit {
  const LoraGroup* group;
  const LoraFactor* factor;
  int64_t first_row, row_count;  // of the group
  int64_t first, count;          // ranks or columns
  float* t;                      // of the group's first row and the factor's first rank
  int64_t t_stride;
};

// The parts of all factors, `size` each of what `extent` says of a factor. The results of x A^T of
// a group lie in rows of all its ranks.
template <class Extent>
std::vector<LoraUnit> units_of(const LoraLinearArgs& args, float* t, int64_t size,
                               const Extent& extent) {
  std::vector<LoraUnit> units;
  for (const LoraGroup& group : args.groups) {
    int64_t ranks = 0;
    for (const LoraFactor& factor : group.factors) ranks += factor.a.rows();
    const int64_t rows = std::ssize(group.rows);
    int64_t first_rank = 0;
    for (const LoraFactor& factor : group.factors) {
      for (int64_t row = 0; row < rows; row += kRowsOfUnit) {
        for (int64_t first = 0; first < extent(factor); first += size) {
          units.push_back({.group = &group,
                           .factor = &factor,
                           .first_row = row,
                           .row_count = std::min(kRowsOfUnit, rows - row),
                           .first = first,
                           .count = std::min(size, extent(factor) - first),
                           .t = t + first_rank,
                           .t_stride = ranks});
        }
      }
      first_rank += factor.a.rows();
    }
    t += rows * ranks;
  }
  return units;
}

struct LoraSize {
  int64_t scratch_floats = 0;  // of x A^T
  int64_t shrinks = 0;         // multiplications of x A^T
  int64_t expands = 0;         // and of what follows
};
LoraSize size_of(const LoraLinearArgs& args) {
  LoraSize size;
  for (const LoraGroup& group : args.groups) {
    for (const LoraFactor& factor : group.factors) {
      const int64_t floats = std::ssize(group.rows) * factor.a.rows();
      size.scratch_floats += floats;
      size.shrinks += floats * args.x.columns();
      size.expands += floats * factor.columns;
    }
  }
  return size;
}

LoraShrink shrink_of(const LoraLinearArgs& args, const LoraUnit& unit) {
  const ConstTensorView& a = unit.factor->a;
  return {.x = f32_row(args.x, 0),
          .x_stride = args.x.row_stride / 4,
          .rows = unit.group->rows.data() + unit.first_row,
          .row_count = unit.row_count,
          .first_row = args.first_row,
          .a = a.row(unit.first),
          .a_stride = a.row_stride,
          .half = a.dtype == DType::kF16,
          .ranks = unit.count,
          .columns = a.columns(),
          .scale = unit.factor->scale,
          .t = unit.t + unit.first_row * unit.t_stride + unit.first,
          .t_stride = unit.t_stride};
}

LoraExpand expand_of(const LoraLinearArgs& args, const LoraUnit& unit) {
  const ConstTensorView& b = unit.factor->b;
  return {.t = unit.t + unit.first_row * unit.t_stride,
          .t_stride = unit.t_stride,
          .b = b.row(unit.first / kLoraPad),
          .b_stride = b.row_stride,
          .half = b.dtype == DType::kF16,
          .ranks = unit.factor->a.rows(),
          .columns = unit.count,
          .y = f32_row(args.y, 0) + unit.factor->first_column + unit.first,
          .y_stride = args.y.row_stride / 4,
          .rows = unit.group->rows.data() + unit.first_row,
          .row_count = unit.row_count,
          .first_row = args.first_row};
}

// How many units are worth a range, where all together are so many products.
int64_t units_of_range(int64_t products, const std::vector<LoraUnit>& units) {
  const int64_t each = std::max<int64_t>(products / std::ssize(units), 1);
  return std::max<int64_t>(kProductsOfRange / each, 1);
}

template <const LoraRowKernels& kKernels>
void run_rows(OpContext& context, const LoraLinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  const LoraSize size = size_of(args);
  if (size.scratch_floats == 0) return;
  float* const t = context.workspace.take_array<float>(size.scratch_floats);
  ThreadPool& pool = context.device.pool();
  const std::vector<LoraUnit> shrinks =
      units_of(args, t, kRanksOfUnit, [](const LoraFactor& factor) { return factor.a.rows(); });
  pool.parallel_rows(std::ssize(shrinks), units_of_range(size.shrinks, shrinks),
                     [&](int64_t first, int64_t last) {
                       for (int64_t u = first; u < last; ++u) {
                         kKernels.shrink(shrink_of(args, shrinks[static_cast<size_t>(u)]));
                       }
                     });
  const std::vector<LoraUnit> expands =
      units_of(args, t, kColumnsOfUnit, [](const LoraFactor& factor) { return factor.columns; });
  pool.parallel_rows(std::ssize(expands), units_of_range(size.expands, expands),
                     [&](int64_t first, int64_t last) {
                       for (int64_t u = first; u < last; ++u) {
                         kKernels.expand(expand_of(args, expands[static_cast<size_t>(u)]));
                       }
                     });
}

bool any_cpu(const DeviceTraits& traits, const LoraLinearArgs&) {
  return traits.kind == DeviceKind::kCpu;
}
bool avx512(const DeviceTraits& traits, const LoraLinearArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const LoraLinearArgs& args) {
  return any_cpu(traits, args) && traits.cpu.avx2;
}

constexpr std::array kLoraKernels = {
    Kernel<LoraLinearArgs>{"lora_linear/cpu/avx512", avx512, run_rows<kLoraAvx512>},
    Kernel<LoraLinearArgs>{"lora_linear/cpu/avx2", avx2, run_rows<kLoraAvx2>},
    Kernel<LoraLinearArgs>{"lora_linear/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<LoraLinearArgs> lora_linear_cpu_kernels() { return kLoraKernels; }

}  // namespace headrace
