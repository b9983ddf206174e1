// Full attention: every row of a sequence sees every row of it, before and behind, or those that
// are near. There is no cache: queries, keys and values are the batch's own rows, of many sequences
// without padding.
//   out_i = sum_j softmax_j(scale q_i k_j + bias(j - i)) v_j
#pragma once

#include <span>

#include "ops/op.h"

namespace headrace {

// Rows [row_first, row_first + row_count) of the batch.
struct RowSequence {
  int32_t row_first = 0;
  int32_t row_count = 0;
};

struct FullAttentionArgs {
  ConstTensorView q, k, v;  // [T, H d] f32, of one stride: slices of the same rows
  int32_t head_dim = 0;     // d
  std::span<const RowSequence> sequences;
  float scale = 0.0f;
  // [H][2 bias_reach + 1] or null: of each head by the distance j - i from -bias_reach on. No
  // sequence is longer than bias_reach + 1.
  const float* bias = nullptr;
  int32_t bias_reach = 0;
  int32_t window = 0;  // row i sees rows i - window to i + window; 0: all
  TensorView out;      // [T, H d] f32, apart from q, k and v. Rows of no sequence are not written
};

// A sequence's rows depend on that sequence alone, bit for bit. CPU only. Takes
// full_attention_workspace_bytes() of the context's workspace for the time of the call.
void full_attention(OpContext& context, const FullAttentionArgs& args);
int64_t full_attention_workspace_bytes(int thread_count, int32_t head_dim, int32_t length_max);

OpCost op_cost(const FullAttentionArgs& args);
const KernelSet<FullAttentionArgs>& full_attention_kernels();
KernelTable<FullAttentionArgs> full_attention_cpu_kernels();

}  // namespace headrace
