// Causal attention over the paged cache for one packed batch of prompt and decode rows.
//
// Batch invariance on the CPU: every (row, head) of the result is bit-identical however a sequence
// is cut into steps (whole prompt, chunks of any size, token by token) and whatever else is in the
// batch. So keys are summed in splits at absolute multiples of 256 (split.h), merged in
// ascending order, whether or not the splits run in parallel; a key that a row may not see is not
// touched by it. Keys of a tree's path take part at their positions, wherever they lie, so that a
// row of a tree has the bits that it has at the end of a chain. Kernels that multiply in BF16
// (panel.h) keep that among rows of one step of a sequence that has 16 and more of them with its
// heads; the others are summed in f32. So they support nothing where DeviceTraits::batch_invariant
// is set.
//
// On CUDA a row's bits depend on how it is cut into tiles (plan.h).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention/kv_view.h"
#include "ops/op.h"

namespace headrace {

inline constexpr int32_t kTreeRowsMax = 64;

// Rows of one sequence in this step. They are consecutive in the batch and last in the cache: row r
// of the sequence (0-based) lies at place kv_length - row_count + r. It is at the position of its
// place and sees the keys up to itself, but for the last `tree_rows` rows, which are a tree of
// proposals (SpecInfer, Miao et al. 2024): such a row sees what lies before the tree, and of the
// tree the rows on its path alone, of which the k-th (0-based) is k positions behind the tree's
// first place. Of a tree with more rows than the sequence has here the first lie there already.
struct AttentionSequence {
  int32_t row_first = 0;
  int32_t row_count = 0;
  int32_t kv_length = 0;                 // tokens in the cache, these rows included
  const int32_t* block_table = nullptr;  // [ceil(kv_length / block_tokens)]; entries wholly behind
                                         // the window are not read
  // CPU. [tree_rows] bit j of word i: row j of the tree is on the path to row i, which ends with
  // row i itself. Null: no tree.
  const uint64_t* paths = nullptr;
  int32_t tree_rows = 0;  // at most kTreeRowsMax

  int32_t tree_first() const { return kv_length - tree_rows; }
  // Of row r: 0 before the tree.
  uint64_t path(int32_t r) const {
    const int32_t before = row_count - tree_rows;
    return r < before ? 0 : paths[r - before];
  }
  int32_t position(int32_t r) const {
    const uint64_t path_of_row = path(r);
    return path_of_row == 0 ? kv_length - row_count + r
                            : tree_first() + std::popcount(path_of_row) - 1;
  }
};

// Calls take(position, place) for the rows of a tree's path, in the order of their positions.
template <class Take>
void for_each_of_path(uint64_t path, int32_t tree_first, Take take) {
  for (int32_t position = tree_first; path != 0; path &= path - 1) {
    take(position++, tree_first + std::countr_zero(path));
  }
}

struct AttentionPlan;  // ops/attention/plan.h

// What a score gains by how far its key is away (Inkling): the sum of `count` profiles of
// distances, each times a number that the row has for the head.
struct RelativeBias {
  int32_t count = 0;                // 0: scores gain nothing
  int32_t extent = 0;               // keys that are so far away gain nothing
  ConstTensorView numbers;          // [T, Hq count] f32, may be columns of more
  const float* profiles = nullptr;  // relative_profiles()
};
// Profiles [count, extent], of distance 0 first, as kernels read them: [count, kRelativePad +
// extent
// + kRelativePad], of the longest distance first, with zeros at both ends.
inline constexpr int32_t kRelativePad = 16;
std::vector<float> relative_profiles(std::span<const float> profiles, int32_t count);

struct AttentionArgs {
  // [T, Hq k_dim], a slice of the qkv rows: f32 on the CPU, on CUDA the cache's type, or any where
  // that has columns (lies_in_columns())
  ConstTensorView q;
  KvLayerView kv;  // this step's keys and values are already there
  std::span<const AttentionSequence> sequences;
  // CPU: entries from the block table that a sequence names to the one that is read. Layers that
  // attend alike share their sequences and may have tables of their own.
  int32_t table_offset = 0;
  float scale = 0.0f;  // scores: q k' * scale
  int32_t window = 0;  // > 0: a row sees that many keys, itself included
  // > 0: a row sees the keys of its own run of so many positions, up to itself (Llama 4), which are
  // no more than the window has, where there is one.
  int32_t chunk = 0;
  float soft_cap = 0.0f;      // > 0: score := cap * tanh(score / cap)
  bool f32_products = false;  // CPU: no kernel that rounds q, keys, values or weights to BF16
  // [Hq] or null: a logit of each head that takes part in its softmax and has no value.
  const float* sinks = nullptr;
  // [Hq] or null: a score loses so much a position that its key is away (ALiBi; Press et al.,
  // 2022).
  const float* slopes = nullptr;
  RelativeBias relative;  // CPU; there is no soft cap then
  // CUDA: the work of `sequences`, already on the device. Null on the CPU.
  const AttentionPlan* plan = nullptr;
  // [T, Hq v_dim], q's type. Rows of no sequence are not written; in a step that only decodes,
  // which may be padded on CUDA, those behind the last sequence's become zero there.
  TensorView out;
};

// Takes attention_workspace_bytes() of the workspace at most, on CUDA attention_partial_bytes().
void attention(OpContext& context, const AttentionArgs& args);

// Whether a sequence of the batch has one.
bool has_tree(const AttentionArgs& args);
OpCost op_cost(const AttentionArgs& args);
const KernelSet<AttentionArgs>& attention_kernels();
KernelTable<AttentionArgs> attention_cpu_kernels();
KernelTable<AttentionArgs> attention_cuda_kernels();

// An upper bound for every batch on a device of `thread_count` threads whose sequences are no
// longer than `kv_length_max`.
int64_t attention_workspace_bytes(int thread_count, int32_t v_dim, int32_t kv_length_max);

}  // namespace headrace
