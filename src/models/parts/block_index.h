// The index of block-sparse attention (MiniMax M3, 2026): beside grouped query attention a head for
// each key head, and one key a token, say which blocks of keys a row's heads attend, where it sees
// more than `top` of them (ops/attention/select_blocks.h). Its keys lie beside what its layer
// attends (LayerKv::index_dim). Of pooled blocks (Qwen 4) there is a key a block
// (ops/attention/pool_index_keys.h), and heads of the index choose for all key heads together.
#pragma once

#include <cstdint>
#include <vector>

#include "base/round_up.h"
#include "models/parts/layer_part.h"
#include "ops/attention/gather_keys.h"
#include "ops/attention/select_blocks.h"

namespace headrace {

struct BlockIndexSpec {
  int32_t heads = 0;  // as many as key heads, but of pooled blocks; 0: rows attend all they see
  int32_t dim = 0;    // of a key, of which the first components are rotated
  BlockRule rule;
  float norm_eps = 0.0f;  // of RMSNorms of queries and keys
  // Of pooled blocks, whose keys rotate by their first positions.
  std::vector<double> inv_freq = {};
  float angle_scale = 1.0f;
};

// The index of one layer. A rank has the heads of its key heads, and the keys of all; of pooled
// blocks all heads.
class BlockIndex {
 public:
  // Rotated by the angles of table `rope`.
  BlockIndex(const BlockIndexSpec& spec, int64_t hidden, int32_t rope)
      : spec_(spec), hidden_(hidden), whole_heads_(spec.heads), rope_(rope) {}

  bool is_here() const { return spec_.heads > 0; }
  bool pools() const { return spec_.rule.pooled; }
  // The key heads of a rank.
  void take(int32_t first, int32_t count);
  int32_t dim() const { return is_here() ? spec_.dim : 0; }  // of what it keeps of a token
  // kUnsupported, naming what to do, where a GPU has no kernels.
  Status check_device(const DeviceTraits& device) const;
  // Of the last three, nothing where it is not.
  Status load(LayerTensors& tensors);
  std::vector<LinearWeight*> matrices();
  int64_t scratch_columns() const;
  // `kv`: what its layer keeps.
  int64_t op_workspace_bytes(const PartLoad& load, const LayerKv& kv) const;

  // Keeps the keys of all rows. Their heads then attend what it chooses, in place of all that
  // `whole` says; `kv`: what its layer keeps. `area`: [T, scratch_columns()].
  // REQUIRES: keys and values of all rows are in the cache, and queries are rotated
  void attend(const MixerRun& run, const LayerKv& kv, const AttentionArgs& whole,
              const TensorView& area) const;

 private:
  struct RowOfSequence;
  struct HeadRun;
  // Rows of which the chosen keys lie in the workspace at a time, where they lie there.
  static constexpr int32_t kGatheredRows = 8;

  int64_t query_width() const { return int64_t{spec_.heads} * spec_.dim; }
  int64_t made_width() const { return query_width() + spec_.dim; }
  ChosenBlocks choose(const MixerRun& run, const TensorView& area) const;
  void pool_keys(const MixerRun& run) const;
  int64_t chosen_numbers() const { return int64_t{pools() ? 1 : spec_.heads} * spec_.rule.top; }
  bool lies_in_pages(const RowOfSequence& row, int32_t block_tokens) const;
  void attend_pages(const HeadRun& head, const std::vector<RowOfSequence>& rows) const;
  void attend_gathered(const HeadRun& head, std::span<const RowOfSequence> rows,
                       const LayerKv& kv) const;
  // Blocks of the cache that the chosen keys of a row take, where they lie side by side.
  int32_t gathered_blocks(int32_t block_tokens) const {
    return static_cast<int32_t>(divide_up(spec_.rule.keys(), block_tokens));
  }

  BlockIndexSpec spec_;  // with this rank's heads, H
  const int64_t hidden_;
  const int32_t whole_heads_;  // of all ranks
  int32_t head_first_ = 0;     // of this one
  const int32_t rope_;
  LinearLayer made_;         // [H dim + dim, D]: queries and the key
  DeviceVector query_norm_;  // [dim]
  DeviceVector key_norm_;
};

}  // namespace headrace
