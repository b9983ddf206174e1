// grouped_linear: the products of a mixture of experts, y[i] = W_e x[rows[i]], where e is the
// expert in whose part of the list row i lies (ops/rows/route_experts.h makes the list). All
// experts' matrices lie in one, so that one launch, whose shape does not depend on who chose what,
// multiplies them all.
// Where others have the rest of the experts, `starts` is a part of the list's: y has rows for the
// whole list, and what those of other experts hold afterwards is nobody's.
// Sums are in f32 and rounded once; a row's bits depend on its own sums alone, as far as those of
// `linear` do. Rows of the list that stand for nobody cost time and touch nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ops/op.h"
#include "ops/packing/packed_weight.h"
#include "ops/rows/activation_row.h"

namespace headrace {

struct GroupedLinearArgs {
  ConstTensorView x;           // [T, K] of the activation type; [R, K] where there are no `rows`
  const LinearWeight* weight;  // [E N, K]: rows [e N, (e + 1) N) are expert e's
  std::span<const int32_t> starts;  // [E + 1]: [starts[e], starts[e + 1]) of the list are expert
                                    // e's. In device memory
  std::span<const int32_t> rows;    // [R], each a row of x, in device memory; empty: i is row i
  const float* bias = nullptr;      // [E N] or null, in device memory: what each sum begins with
  std::optional<Activation> gate;   // N are gate's rows, then up's: y = act(gate) * up
  TensorView y;                     // [R, N], or [R, N / 2] where it is gated; of x's type
  // The op before this one on the stream is a grouped_linear over the same `starts`: W may be asked
  // for before that has ended.
  bool follows_another = false;
  int64_t listed_experts = 0;  // that share the list; 0: these alone, starts[0] is 0, starts[E] R

  int64_t experts() const { return std::ssize(starts) - 1; }
  // Of these experts, on average.
  int64_t rows_about() const {
    return listed_experts > 0 ? y.rows() * experts() / listed_experts : y.rows();
  }
  int64_t expert_rows() const { return weight->n() / experts(); }  // N
};

void grouped_linear(OpContext& context, const GroupedLinearArgs& args);
// Scratch memory that it takes at most: where W is packed, on a GPU.
int64_t grouped_workspace_bytes(const LinearWeight& weight, int64_t experts);
// Whether a GPU's kernels take `rows` rows of each expert packed, in block types.
inline bool experts_can_be_packed(int64_t rows, bool gated) {
  return rows % (gated ? 2 * kLinearGroupRows : kLinearGroupRows) == 0;
}

// Of all experts' bytes: which of them have rows is known to the device alone.
OpCost op_cost(const GroupedLinearArgs& args);
const KernelSet<GroupedLinearArgs>& grouped_linear_kernels();
KernelTable<GroupedLinearArgs> grouped_linear_cpu_kernels();
KernelTable<GroupedLinearArgs> grouped_linear_cuda_kernels();

}  // namespace headrace
