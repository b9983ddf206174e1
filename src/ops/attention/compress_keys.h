// compress_keys: keys that several tokens share (DeepSeek-AI, 2026; DeepSeek V4). Of each token
// numbers C and gates Z are kept for a while, its sources; when the last token of a run of `rate`
// tokens has come, they become one key:
//   softmax over the tokens j of Z_j + B_(j mod rate), component by component, of the C_j
//   RMSNorm of that sum, whose last components then rotate by the position of the run's first token
// Overlapping runs: of each token there are two series of sources; a key is made of the first
// series of the run before and the second of its own (the first run has the second alone).
//
// keep_sources: a token's key and sources, as they are, to its place in the cache.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

struct KeepSourcesArgs {
  ConstTensorView keys;     // [T, k_dim] f32, of one head
  ConstTensorView sources;  // [T, source_dim] f32, or no data: the cache keeps none
  KvLayerView cache;
  std::span<const int64_t> slots;  // [T]
};

// A run of tokens that is complete.
struct CompleteRun {
  int32_t last = 0;                       // the position of its last token
  const int32_t* source_table = nullptr;  // block tables of its sequence, of `sources` and `keys`
  const int32_t* key_table = nullptr;
};

struct CompressKeysArgs {
  KvLayerView sources;
  int32_t first = 0;  // of a token's sources: numbers of each series, then their gates
  bool overlaps = false;
  const float* bias = nullptr;  // B [rate, series dim]
  const float* norm = nullptr;  // [dim]
  float norm_eps = 0.0f;
  ConstTensorView cos;  // [runs, pairs] f32, of the positions of the runs' first tokens
  ConstTensorView sin;
  std::span<const CompleteRun> runs;
  KvLayerView keys;       // whose rate it is
  bool of_index = false;  // the keys are those of the index there, else the heads'
};

// A key depends on its tokens alone, bit for bit. CPU.
void keep_sources(OpContext& context, const KeepSourcesArgs& args);
void compress_keys(OpContext& context, const CompressKeysArgs& args);

OpCost op_cost(const KeepSourcesArgs& args);
const KernelSet<KeepSourcesArgs>& keep_sources_kernels();
KernelTable<KeepSourcesArgs> keep_sources_cpu_kernels();
OpCost op_cost(const CompressKeysArgs& args);
const KernelSet<CompressKeysArgs>& compress_keys_kernels();
KernelTable<CompressKeysArgs> compress_keys_cpu_kernels();

}  // namespace headrace
