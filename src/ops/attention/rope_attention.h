// rope_attention: rope_kv, then attention over the cache with this step's keys and values in it, as
// one op, so that a device may rotate the rows of a step that only decodes where it attends them.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/rope_kv.h"

namespace headrace {

struct RopeAttentionArgs {
  RopeKvArgs rope;
  // q: the first query_heads * d columns of rope.qkv; kv: rope's.
  AttentionArgs attention;
};

// Takes of the workspace what attention() takes. `two_ops` leaves rotated heads in rope.qkv; others
// may leave the row as it was.
void rope_attention(OpContext& context, const RopeAttentionArgs& args);
const KernelSet<RopeAttentionArgs>& rope_attention_kernels();
KernelTable<RopeAttentionArgs> rope_attention_cuda_kernels();

}  // namespace headrace
