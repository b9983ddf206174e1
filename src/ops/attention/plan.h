// The work of attention on a GPU, cut into tiles on the host once a step and KV group, and read by
// the kernels of every layer from device memory, so that a launch has one shape whatever the batch
// (a captured graph replays with other lengths).
//
// A tile is some consecutive query positions of one sequence, for all query heads of one key head
// (rows = positions x heads of the group), against a range of keys. Kernels run each tile once per
// key head. Tiles come in two kinds: prefill (many rows, all their keys; a few of them may be
// shared out by keys) and decode (few rows; the keys of a long sequence are shared out over several
// tiles, whose partial results are merged: Flash-Decoding, Dao et al. 2023). Long tiles come first,
// so that a grid that takes the next tile when it is free ends evenly; prompts are taken in
// sections whose keys and values stay in the L2 cache until their last tile is done (as
// FlashAttention-3's scheduler does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/attention/attention.h"

namespace headrace {

inline constexpr int32_t kPrefillSteps = 128;

// Rows of a tile (query positions x query heads of a key head): 64 for each warpgroup that
// computes, of which heads of 64 leave registers for three.
constexpr int32_t prefill_tile_rows(int32_t head_dim) { return head_dim == 64 ? 192 : 128; }
inline constexpr int32_t kDecodeTileRowsMax = 16;
inline constexpr int32_t kLatentTileRows = 64;
// Of a prefill tile that is merged: warpgroups that compute, each on its own.
inline constexpr int32_t kPrefillParts = 3;
// Floats of a prefill tile's partial result, a row: sums, and 8 of the softmax's state in the four
// threads that share a row.
constexpr int32_t prefill_partial_floats(int32_t head_dim) { return head_dim + 8; }

// A quarter of an H200's L2 cache, each half of which keeps what its multiprocessors read; queries
// and results pass through it too.
inline constexpr int64_t kAttentionSectionBytes = int64_t{12} << 20;

// What is fixed at start for the layers of one KV group.
struct AttentionPlanShape {
  int32_t query_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;
  int32_t window = 0;  // as in AttentionArgs, as is chunk
  int32_t chunk = 0;
  int32_t sm_count = 0;       // DeviceTraits
  int32_t rows_max = 0;       // most rows of a step
  int32_t sequences_max = 0;  // most sequences of a step
  // A row's bits then do not depend on how its sequence is cut into steps, nor on other sequences:
  // every row takes prefill tiles, whose keys are folded in steps that start at absolute multiples
  // of kPrefillSteps. Decode is slower, most of all few long sequences.
  bool batch_invariant = false;
  // Where a step's prompts have fewer tiles than there are multiprocessors (a chunk of a prompt
  // behind a long context), their keys are shared out too. Not with batch_invariant.
  bool split_prompts = false;
  // Values are parts of keys, one for all heads: all rows take prefill tiles of kLatentTileRows
  // rows, which are shared out over thread blocks on the host (latent_plan.h).
  bool latents = false;
  // Keys and values, in 16 bits, of the prompts whose tiles are handed out longest first before
  // those of others are; 0: no sections.
  int64_t section_bytes = kAttentionSectionBytes;
  // Rows are listed too, one by one (AttentionRow), for layers whose rows attend keys of their own
  // choice (select_keys.h, gather_keys.h).
  bool lists_rows = false;
  int32_t kv_length_max = 0;  // with lists_rows: the most tokens of a sequence
};

// 8 or 16: one step of the tensor cores, or two.
int32_t decode_tile_rows(const AttentionPlanShape& shape);

// One tile, as kernels read it.
struct AttentionTileWork {
  const int32_t* block_table;  // the sequence's
  int32_t row_first;           // in the batch
  int32_t row_count;           // query positions
  int32_t position;            // of the first row in its sequence
  int32_t key_first;           // a multiple of block_tokens
  int32_t key_last;            // keys [key_first, key_last)
  int32_t split;               // which of the splits of its rows this is
  int32_t split_count;         // 1: this tile writes the result
  int32_t merge;               // the rows' number among those of their kind that are merged, or -1
  int32_t partial_first;       // number of the rows' first partial tile
  int32_t step_first;          // <= key_first: from where a prefill tile counts its steps
};

// The pages that the prefill tiles of a sequence read, for kernels that prepare them
// (unpack_kv.cuh).
struct AttentionPageRun {
  const int32_t* block_table;  // the sequence's
  int32_t page_first;          // entries [page_first, page_first + page_count)
  int32_t page_count;
  int32_t before;  // pages of the runs before this one
};

// A row of the step: the block table of its sequence, and its position there. A row of no sequence
// has position -1.
struct AttentionRow {
  const int32_t* block_table = nullptr;
  int32_t position = -1;
};

// At the front of the arena; the decode tiles follow it.
struct alignas(16) AttentionPlanHeader {
  int32_t prefill_count;  // tiles
  int32_t decode_count;
  int32_t prefill_first;  // bytes from the front of the arena
  int32_t merge_count;    // groups of splits of decode tiles
  int32_t arrived_first;  // bytes to [merge_count, kv_heads] uint32: splits that are done. All zero
                          // between launches: kernels put them back
  int32_t prefill_arrived_first;  // the same of prefill tiles, [.., kv_heads, kPrefillParts]
  uint32_t prefill_next;  // likewise: items handed out beyond those given to each thread block
  uint32_t decode_next;
  uint32_t prefill_done;  // thread blocks that have ended
  uint32_t decode_done;
  int32_t row_count;   // of all sequences: rows of `out` from here on are padding
  int32_t runs_first;  // bytes to the runs of pages, one a sequence with prefill tiles
  int32_t run_count;
  int32_t run_pages;       // of all of them
  int32_t teams_first;     // bytes to the first tiles of teams (latent_plan.h)
  int32_t latents_shared;  // 1 where tiles over latents are shared out
  int32_t rows_first;      // bytes to the AttentionRow of each of row_count rows, where they are
                           // listed
};

struct AttentionPlan {
  // Which kernels are launched. Steps of single rows are recorded with other lengths than they are
  // replayed with: all such plans of a shape say the same here.
  bool has_prefill = false;
  bool has_decode = false;
  bool splits_prompts = false;    // prefill tiles may be shared out by keys
  bool only_single_rows = false;  // every sequence has one row, in decode tiles
  // Some of these sequences are rows of one, which see each other's keys: all keys of the step are
  // kept before any row attends. Whoever makes such a step says so.
  bool rows_meet = false;

  bool has_merge = false;       // some tiles are shared out by keys
  int32_t kv_length_max = 0;    // of the sequences of this step
  int64_t bytes = 0;            // of the arena in use: what has to reach the device
  std::byte* device = nullptr;  // the arena in device memory; whoever uploads it sets this
  AttentionPlanShape shape;
};

// Whether decode tiles can hold all query heads of a key head.
bool fits_decode_tiles(const AttentionPlanShape& shape);

// Whether prefill tiles may be shared out by keys.
bool splits_prompts(const AttentionPlanShape& shape);

// Upper bounds over every step of this shape: bytes of the arena, and of the workspace in which
// attention() keeps partial results, in all and of each kind of tiles.
int64_t attention_plan_bytes(const AttentionPlanShape& shape);
int64_t attention_partial_bytes(const AttentionPlanShape& shape);
int64_t decode_partial_bytes(const AttentionPlanShape& shape);
int64_t prefill_partial_bytes(const AttentionPlanShape& shape);

// Fills the arena. REQUIRES: arena.size() >= attention_plan_bytes(shape), 16-byte aligned; the
// sequences within the shape's bounds
AttentionPlan plan_attention(const AttentionPlanShape& shape,
                             std::span<const AttentionSequence> sequences,
                             std::span<std::byte> arena);

// The same plan for layers whose block tables lie `table_offset` entries behind those of `plan`,
// which was written to `from`. REQUIRES: as plan_attention()
AttentionPlan plan_beside(const AttentionPlan& plan, std::span<const std::byte> from,
                          int64_t table_offset, std::span<std::byte> arena);

}  // namespace headrace
