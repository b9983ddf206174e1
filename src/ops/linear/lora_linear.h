// lora_linear: y += scale (x A^T) B^T, what low-rank adapters (Hu et al., 2021) add to a product,
// of rows that each have an adapter of their own or none: two thin products for each adapter over
// the rows that have it, as SGMV of Punica (Chen et al., 2023) and S-LoRA (Sheng et al., 2023) do.
//
// On the CPU a row's bits depend on nothing but the row and its adapter:
//   t[r] = scale * sum of 16 lanes, of which lane l sums fma(x[k], a[r][k]) over k = l, l + 16, ...
//   d    = fma(t[r], b[r][n], d), r ascending from d = 0, then y[n] + d
//
// On a GPU neither do they: t is summed in f32 in an order that follows from K, and enters the
// second product as two numbers of the factors' type, of which the second is what the first has
// lost (F32: as it is). Of F16 a finite t beyond its range is the nearest number in it, but in the
// kernel of any shape, which multiplies in f32. Which rows have which adapter is read on the
// device.
#pragma once

#include <span>

#include "ops/linear/lora_slot.h"
#include "ops/op.h"

namespace headrace {

// What an adapter adds to some columns of a product. F32 or F16, both of one type. Each is read
// once in a step, from memory: in the order in which it lies.
inline constexpr int64_t kLoraPad = 16;
struct LoraFactor {
  ConstTensorView a;  // [R, K], rows padded with zeros to whole kLoraPad elements
  // [panels, R * kLoraPad], dense: element r * kLoraPad + j of panel p is B[p * kLoraPad + j][r],
  // of no meaning behind B's last row.
  ConstTensorView b;
  int64_t columns = 0;       // N', B's rows
  float scale = 1.0f;        // alpha / R
  int64_t first_column = 0;  // of y: columns [first_column, first_column + N')
};

// The rows of one adapter, ascending, and its factors of the matrix that is multiplied.
struct LoraGroup {
  std::span<const int32_t> rows;
  std::span<const LoraFactor> factors;
};

struct LoraLinearArgs {
  ConstTensorView x;                  // [M, K]; f32 on a CPU
  std::span<const LoraGroup> groups;  // CPU: of rows in [first_row, first_row + M), no row twice
  int32_t first_row = 0;              // CPU: what the groups call row 0 of x and y
  TensorView y;                       // [M, N], apart from x; of x's type
  // GPU, and the null device: tasks in device memory, whose rows are those of x, no row twice; the
  // product's factors; the slots, of x's type.
  std::span<const LoraTask> tasks = {};
  std::span<const LoraPlace> places = {};
  const LoraSlotsView* slots = nullptr;
};
inline constexpr size_t kLoraPlacesMax = 4;

// On a CPU it takes lora_linear_workspace_bytes(rows of all groups, ranks of all factors of one) of
// the context's workspace for the time of the call, on a GPU lora_tasks_workspace_bytes().
void lora_linear(OpContext& context, const LoraLinearArgs& args);
int64_t lora_linear_workspace_bytes(int64_t rows, int64_t ranks);
// Of so many factors of a product of `columns` = K.
int64_t lora_tasks_workspace_bytes(int64_t tasks, int64_t columns, int64_t factors,
                                   int32_t rank_max);

OpCost op_cost(const LoraLinearArgs& args);
const KernelSet<LoraLinearArgs>& lora_linear_kernels();
KernelTable<LoraLinearArgs> lora_linear_cpu_kernels();
KernelTable<LoraLinearArgs> lora_linear_cuda_kernels();

}  // namespace headrace
