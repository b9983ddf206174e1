// select_keys: the keys that a row of sparse attention (DeepSeek-AI, 2025) attends. A key that the
// row may see has the score
//   sum over heads h of weights[h] * max(0, q_h' k)
// over the index keys that the layer keeps; the `top` keys of the largest scores are chosen, of
// equal ones the first in the text. Where a row sees no more than `top` keys, it has all. Of keys
// that several tokens share a row sees those whose tokens it sees all of.
//
// A score depends on its row and key alone, bit for bit, and has one order of arithmetic on all
// instruction sets, but for the reference, which sums doubles. So the choice does not depend on how
// a text is cut into steps. On CUDA one kernel has the order of the CPU, the other the tensor
// cores'; which one runs depends on the sizes of the index alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/attention/attention.h"
#include "ops/op.h"

namespace headrace {

// Rows of the places of chosen keys in the cache of their sequence, by ascending position.
struct ChosenPlaces {
  int32_t* front = nullptr;
  int64_t stride = 0;  // from one row to the next
  int32_t top = 0;     // of a row at most
  int32_t rate = 1;    // tokens that share a key

  int32_t* row(int64_t t) const { return front + t * stride; }
  // Of a row at `position`: the keys that it sees, and those that it has.
  int32_t seen(int32_t position) const { return (position + 1) / rate; }
  int32_t count(int32_t position) const { return std::min(top, seen(position)); }
};

struct SelectKeysArgs {
  ConstTensorView queries;                       // [T, heads index_dim] of the activation type
  ConstTensorView weights;                       // [T, heads] f32
  KvLayerView kv;                                // this step's keys are already there
  std::span<const AttentionSequence> sequences;  // CPU
  int32_t table_offset = 0;                      // CPU: as in AttentionArgs
  ChosenPlaces chosen;                           // of all rows; its rate is that of kv
  // CUDA, in place of the sequences: as in AttentionArgs. REQUIRES: it lists rows
  const AttentionPlan* plan = nullptr;
};

// Takes select_keys_workspace_bytes() of the workspace at most, on CUDA
// select_keys_cuda_workspace_bytes().
void select_keys(OpContext& context, const SelectKeysArgs& args);
int64_t select_keys_workspace_bytes(int32_t kv_length_max);
int64_t select_keys_cuda_workspace_bytes(int64_t rows, int32_t kv_length_max);

OpCost op_cost(const SelectKeysArgs& args);
const KernelSet<SelectKeysArgs>& select_keys_kernels();
KernelTable<SelectKeysArgs> select_keys_cpu_kernels();
KernelTable<SelectKeysArgs> select_keys_cuda_kernels();

}  // namespace headrace
