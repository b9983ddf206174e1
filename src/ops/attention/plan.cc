#include "ops/attention/plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "ops/attention/latent_plan.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

// Sequences of up to so many rows (positions x heads of a group) take decode tiles: beyond, reading
// the keys once for all rows is worth more than sharing the keys out.
constexpr int32_t kDecodeRowsMax = 64;
// Decode tiles x key heads that a step is cut into where its sequences are long enough, a
// multiprocessor, on which two thread blocks run. More even out skewed steps better, but cost more
// in merging than they gain.
constexpr int32_t kSplitsPerSm = 2;
constexpr int32_t kSplitBlocksMin = 16;
// Not cut: merging takes about 2.5 us, in which a thread block reads some 25 blocks.
constexpr int32_t kWholeBlocksMax = 36;
// A split of a prefill tile: a step of 128 keys takes a multiprocessor about 2 us, and one of the
// splits reads the results of all, 66 KB each.
constexpr int32_t kPromptSplitStepsMin = 4;
constexpr int32_t kPromptSplitsMax = 16;

int32_t ceil_div(int64_t a, int64_t b) { return static_cast<int32_t>((a + b - 1) / b); }

int32_t group_of(const AttentionPlanShape& shape) { return shape.query_heads / shape.kv_heads; }

bool takes_decode_tiles(const AttentionPlanShape& shape, int32_t row_count) {
  return !shape.batch_invariant && fits_decode_tiles(shape) &&
         int64_t{row_count} * group_of(shape) <= kDecodeRowsMax;
}

// Of a prefill tile.
int32_t prompt_tile_rows(const AttentionPlanShape& shape) {
  return shape.latents ? kLatentTileRows : prefill_tile_rows(shape.head_dim);
}

// Query positions of a tile.
int32_t tile_positions(int32_t tile_rows, int32_t group) { return std::max(1, tile_rows / group); }

// The first key that a row at `position` sees.
int32_t first_seen(const AttentionPlanShape& shape, int32_t position) {
  if (shape.chunk > 0) return position / shape.chunk * shape.chunk;
  return shape.window > 0 ? std::max(0, position + 1 - shape.window) : 0;
}

// The tiles of one sequence, each against all the keys that its rows see.
void cut_rows(const AttentionPlanShape& shape, const AttentionSequence& sequence, int32_t tile_rows,
              std::vector<AttentionTileWork>& tiles) {
  const int32_t step = tile_positions(tile_rows, group_of(shape));
  const int32_t position_first = sequence.kv_length - sequence.row_count;
  for (int32_t row = 0; row < sequence.row_count; row += step) {
    const int32_t position = position_first + row;
    const int32_t row_count = std::min(step, sequence.row_count - row);
    const int32_t key_first = first_seen(shape, position) / shape.block_tokens * shape.block_tokens;
    tiles.push_back({.block_table = sequence.block_table,
                     .row_first = sequence.row_first + row,
                     .row_count = row_count,
                     .position = position,
                     .key_first = key_first,
                     .key_last = position + row_count,
                     .split = 0,
                     .split_count = 1,
                     .merge = -1,
                     .partial_first = 0,
                     .step_first = shape.batch_invariant ? key_first / kPrefillSteps * kPrefillSteps
                                                         : key_first});
  }
}

int32_t blocks_of(const AttentionPlanShape& shape, const AttentionTileWork& tile) {
  return ceil_div(tile.key_last - tile.key_first, shape.block_tokens);
}

void longest_first(std::span<AttentionTileWork> tiles) {
  const auto keys = [](const AttentionTileWork& tile) { return tile.key_last - tile.key_first; };
  const auto longer = [&](const auto& a, const auto& b) { return keys(a) > keys(b); };
  if (std::is_sorted(tiles.begin(), tiles.end(), longer)) return;
  // Numbers are sorted, not tiles of 48 bytes: length, then place.
  std::vector<uint64_t> order;
  order.reserve(tiles.size());
  for (const AttentionTileWork& tile : tiles) {
    order.push_back(uint64_t{~static_cast<uint32_t>(keys(tile))} << 32 | order.size());
  }
  std::sort(order.begin(), order.end());
  std::vector<AttentionTileWork> sorted;
  sorted.reserve(tiles.size());
  for (const uint64_t place : order) sorted.push_back(tiles[static_cast<uint32_t>(place)]);
  std::copy(sorted.begin(), sorted.end(), tiles.begin());
}

// Bytes of keys and values that the rows of a prompt see.
int64_t seen_bytes(const AttentionPlanShape& shape, const AttentionSequence& sequence) {
  constexpr int64_t kKeyAndValue = 2 * 2;
  const int32_t keys =
      sequence.kv_length - first_seen(shape, sequence.kv_length - sequence.row_count);
  return kKeyAndValue * keys * shape.kv_heads * shape.head_dim;
}

// What the tiles of these sequences read.
std::vector<AttentionPageRun> page_runs(const AttentionPlanShape& shape,
                                        const std::vector<AttentionSequence>& prompts) {
  std::vector<AttentionPageRun> runs;
  int32_t before = 0;
  for (const AttentionSequence& prompt : prompts) {
    const int32_t seen_first =
        first_seen(shape, prompt.kv_length - prompt.row_count) / shape.block_tokens;
    const int32_t count = ceil_div(prompt.kv_length, shape.block_tokens) - seen_first;
    runs.push_back({prompt.block_table, seen_first, count, before});
    before += count;
  }
  return runs;
}

// The tiles of prompts, longest first within each section. The longest prompts come first, so that
// the last tiles of all are short ones.
std::vector<AttentionTileWork> cut_prompts(const AttentionPlanShape& shape,
                                           std::vector<AttentionSequence> prompts) {
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const auto& a, const auto& b) { return a.kv_length > b.kv_length; });
  std::vector<AttentionTileWork> tiles;
  size_t section = 0;
  int64_t bytes = 0;
  for (const AttentionSequence& prompt : prompts) {
    const int64_t more = seen_bytes(shape, prompt);
    if (shape.section_bytes > 0 && bytes > 0 && bytes + more > shape.section_bytes) {
      longest_first(std::span(tiles).subspan(section));
      section = tiles.size();
      bytes = 0;
    }
    bytes += more;
    cut_rows(shape, prompt, prompt_tile_rows(shape), tiles);
  }
  longest_first(std::span(tiles).subspan(section));
  return tiles;
}

// Blocks of keys of a split, such that the step's decode work makes about
// kSplitsPerSm * sm_count tiles.
int32_t split_blocks(const AttentionPlanShape& shape, const std::vector<AttentionTileWork>& tiles) {
  int64_t blocks = 0;
  for (const AttentionTileWork& tile : tiles) blocks += blocks_of(shape, tile);
  const int64_t parts = int64_t{kSplitsPerSm} * shape.sm_count;
  return std::max(kSplitBlocksMin, ceil_div(blocks * shape.kv_heads, parts));
}

struct SplitTiles {
  std::vector<AttentionTileWork> tiles;
  int32_t merge_count = 0;
  int32_t partial_count = 0;

  // Parts of `tokens` keys, the last of fewer, whose results are merged.
  void add_parts(const AttentionTileWork& tile, int32_t tokens) {
    const int32_t split_count = ceil_div(tile.key_last - tile.key_first, tokens);
    for (int32_t split = 0; split < split_count; ++split) {
      AttentionTileWork part = tile;
      part.key_first = tile.key_first + split * tokens;
      part.key_last = std::min(tile.key_last, part.key_first + tokens);
      part.step_first = part.key_first;
      part.split = split;
      part.split_count = split_count;
      part.merge = merge_count;
      part.partial_first = partial_count;
      tiles.push_back(part);
    }
    partial_count += split_count;
    ++merge_count;
  }
};

// Tiles of more than 1.5 splits are cut into equal ones.
SplitTiles cut_keys(const AttentionPlanShape& shape, std::vector<AttentionTileWork> whole) {
  const bool all_short = std::all_of(whole.begin(), whole.end(), [&](const auto& tile) {
    return tile.key_last - tile.key_first <= kWholeBlocksMax * shape.block_tokens;
  });
  if (all_short) return {std::move(whole)};
  const int32_t target = split_blocks(shape, whole);
  SplitTiles cut;
  cut.tiles.reserve(whole.size());
  for (const AttentionTileWork& tile : whole) {
    const int32_t blocks = blocks_of(shape, tile);
    if (blocks <= kWholeBlocksMax || 2 * int64_t{blocks} <= 3 * int64_t{target}) {
      cut.tiles.push_back(tile);
      continue;
    }
    cut.add_parts(tile, ceil_div(blocks, ceil_div(blocks, target)) * shape.block_tokens);
  }
  return cut;
}

// Prefill tiles that run at once, each with all key heads.
int32_t prompt_tiles_at_once(const AttentionPlanShape& shape) {
  return shape.sm_count / shape.kv_heads;
}

int32_t steps_of(const AttentionTileWork& tile) {
  return ceil_div(tile.key_last - tile.step_first, kPrefillSteps);
}
int32_t splits_of(const AttentionTileWork& tile, int32_t steps) {
  return std::min(kPromptSplitsMax, ceil_div(steps_of(tile), steps));
}

// The fewest steps of a split with which the splits of all tiles run at once.
int32_t prompt_split_steps(const AttentionPlanShape& shape,
                           const std::vector<AttentionTileWork>& tiles) {
  const auto fit = [&](int32_t steps) {
    int64_t splits = 0;
    for (const AttentionTileWork& tile : tiles) splits += splits_of(tile, steps);
    return splits <= prompt_tiles_at_once(shape);
  };
  int32_t low = kPromptSplitStepsMin, high = low;
  for (const AttentionTileWork& tile : tiles) high = std::max(high, steps_of(tile));
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (fit(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// The tiles of prompts where they would leave multiprocessors idle: cut at whole steps.
SplitTiles cut_prompt_keys(const AttentionPlanShape& shape, std::vector<AttentionTileWork> whole) {
  if (!splits_prompts(shape) || static_cast<int64_t>(whole.size()) >= prompt_tiles_at_once(shape)) {
    return {std::move(whole)};
  }
  const int32_t steps = prompt_split_steps(shape, whole);
  SplitTiles cut;
  for (const AttentionTileWork& tile : whole) {
    const int32_t each = ceil_div(steps_of(tile), splits_of(tile, steps));
    if (each == steps_of(tile)) {
      cut.tiles.push_back(tile);
    } else {
      cut.add_parts(tile, each * kPrefillSteps);
    }
  }
  longest_first(cut.tiles);
  return cut;
}

// Most split prefill tiles of a step.
int64_t prompt_partials_max(const AttentionPlanShape& shape) {
  return splits_prompts(shape) ? prompt_tiles_at_once(shape) : 0;
}

// Most split tiles of a step. A tile of b > 1.5 splits' blocks becomes ceil(b / split) < 5/3 b /
// split of them, and the splits of all are at most kSplitsPerSm * sm_count / kv_heads.
int64_t partial_tiles_max(const AttentionPlanShape& shape) {
  return ceil_div(5 * int64_t{kSplitsPerSm} * shape.sm_count, 3 * int64_t{shape.kv_heads}) + 1;
}

// How many there are of what a plan has.
struct PlanCounts {
  int64_t decode_tiles = 0, prefill_tiles = 0;
  int64_t decode_merges = 0, prefill_merges = 0;  // groups of splits
  int64_t runs = 0;                               // of pages
  int64_t teams = 0;                              // and one, of latents
  int64_t rows = 0;                               // that are listed
};

// Where the parts of a plan lie in its arena.
struct PlanParts {
  static constexpr int64_t kCount = 8;
  static constexpr int64_t kAlignment = 16;

  ArenaPart<AttentionPlanHeader> header;
  ArenaPart<AttentionTileWork> decode, prefill;
  ArenaPart<AttentionPageRun> runs;
  ArenaPart<uint32_t> arrived, prefill_arrived;
  ArenaPart<int32_t> teams;
  ArenaPart<AttentionRow> rows;

  static PlanParts place(ArenaPlaces& places, const AttentionPlanShape& shape,
                         const PlanCounts& counts) {
    const auto take_arrived = [&](int64_t merges) {
      return places.take<uint32_t>(static_cast<size_t>(merges * shape.kv_heads));
    };
    PlanParts parts;
    parts.header = places.take<AttentionPlanHeader>(1);
    parts.decode = places.take<AttentionTileWork>(static_cast<size_t>(counts.decode_tiles));
    parts.prefill = places.take<AttentionTileWork>(static_cast<size_t>(counts.prefill_tiles));
    parts.runs = places.take<AttentionPageRun>(static_cast<size_t>(counts.runs));
    parts.arrived = take_arrived(counts.decode_merges);
    parts.prefill_arrived = take_arrived(counts.prefill_merges * kPrefillParts);
    parts.teams = places.take<int32_t>(static_cast<size_t>(counts.teams));
    parts.rows = places.take<AttentionRow>(static_cast<size_t>(counts.rows));
    return parts;
  }
};

// Upper bounds over every step of this shape.
PlanCounts counts_max(const AttentionPlanShape& shape) {
  const int32_t group = group_of(shape);
  const int64_t rows = shape.rows_max, sequences = shape.sequences_max;
  const int64_t decode_splits = partial_tiles_max(shape);
  const int64_t prompt_splits = prompt_partials_max(shape);
  // A sequence has decode tiles for kDecodeRowsMax rows at most.
  const int64_t decode_tiles =
      std::min(rows, rows / tile_positions(decode_tile_rows(shape), group) + sequences);
  const int64_t prefill_tiles = rows / tile_positions(prompt_tile_rows(shape), group) + sequences;
  return {.decode_tiles = decode_tiles + decode_splits,
          .prefill_tiles =
              prefill_tiles + prompt_splits + (shape.latents ? latent_partials_max(shape) : 0),
          .decode_merges = decode_splits,
          .prefill_merges = prompt_splits,
          .runs = sequences,
          .teams = shape.latents ? latent_teams(shape) + 1 : 0,
          .rows = shape.lists_rows ? rows : 0};
}

// Rows of all sequences: what a step has behind them is padding.
int32_t row_count_of(std::span<const AttentionSequence> sequences) {
  int32_t rows = 0;
  for (const AttentionSequence& sequence : sequences) {
    rows = std::max(rows, sequence.row_first + sequence.row_count);
  }
  return rows;
}

int32_t longest_of(std::span<const AttentionSequence> sequences) {
  int32_t longest = 0;
  for (const AttentionSequence& sequence : sequences) {
    longest = std::max(longest, sequence.kv_length);
  }
  return longest;
}

// Where each row stands, as AttentionPlanShape::lists_rows asks for it; else nothing.
std::vector<AttentionRow> listed_rows(const AttentionPlanShape& shape,
                                      std::span<const AttentionSequence> sequences) {
  if (!shape.lists_rows) return {};
  std::vector<AttentionRow> rows(static_cast<size_t>(row_count_of(sequences)));
  for (const AttentionSequence& sequence : sequences) {
    for (int32_t r = 0; r < sequence.row_count; ++r) {
      rows[static_cast<size_t>(sequence.row_first + r)] = {
          sequence.block_table, sequence.kv_length - sequence.row_count + r};
    }
  }
  return rows;
}

// Fills the arena with the tiles of a step; bytes of it in use.
int64_t write_plan(const AttentionPlanShape& shape, const SplitTiles& decode,
                   const SplitTiles& prefill, std::span<const AttentionPageRun> runs,
                   const LatentWork& latents, std::span<const AttentionSequence> sequences,
                   std::span<std::byte> arena) {
  const std::vector<AttentionRow> rows = listed_rows(shape, sequences);
  ArenaPlaces places(PlanParts::kAlignment);
  const PlanParts parts = PlanParts::place(places, shape,
                                           {.decode_tiles = std::ssize(decode.tiles),
                                            .prefill_tiles = std::ssize(prefill.tiles),
                                            .decode_merges = decode.merge_count,
                                            .prefill_merges = prefill.merge_count,
                                            .runs = std::ssize(runs),
                                            .teams = std::ssize(latents.team_first),
                                            .rows = std::ssize(rows)});
  CHECK_MSG(places.used() <= std::ssize(arena), "attention plan's arena is too small");
  *parts.header.in(arena.data()) = {
      .prefill_count = static_cast<int32_t>(prefill.tiles.size()),
      .decode_count = static_cast<int32_t>(decode.tiles.size()),
      .prefill_first = static_cast<int32_t>(parts.prefill.first),
      .merge_count = decode.merge_count,
      .arrived_first = static_cast<int32_t>(parts.arrived.first),
      .prefill_arrived_first = static_cast<int32_t>(parts.prefill_arrived.first),
      .row_count = row_count_of(sequences),
      .runs_first = static_cast<int32_t>(parts.runs.first),
      .run_count = static_cast<int32_t>(runs.size()),
      .run_pages = runs.empty() ? 0 : runs.back().before + runs.back().page_count,
      .teams_first = static_cast<int32_t>(parts.teams.first),
      .latents_shared = latents.is_shared ? 1 : 0,
      .rows_first = static_cast<int32_t>(parts.rows.first)};
  std::copy(rows.begin(), rows.end(), parts.rows.in(arena.data()));
  std::copy(latents.team_first.begin(), latents.team_first.end(), parts.teams.in(arena.data()));
  std::copy(runs.begin(), runs.end(), parts.runs.in(arena.data()));
  std::copy(decode.tiles.begin(), decode.tiles.end(), parts.decode.in(arena.data()));
  std::copy(prefill.tiles.begin(), prefill.tiles.end(), parts.prefill.in(arena.data()));
  for (const ArenaPart<uint32_t>& arrived : {parts.arrived, parts.prefill_arrived}) {
    std::fill_n(arrived.in(arena.data()), arrived.count, 0u);
  }
  return places.used();
}

// All rows are in prefill tiles.
AttentionPlan plan_latents(const AttentionPlanShape& shape,
                           std::span<const AttentionSequence> sequences,
                           std::span<const AttentionPageRun> runs,
                           std::span<const AttentionTileWork> whole, std::span<std::byte> arena) {
  LatentWork work = share_latents(shape, whole);
  return {.has_prefill = !work.tiles.empty(),
          .has_merge = work.is_shared,
          .kv_length_max = longest_of(sequences),
          .bytes = write_plan(shape, {}, {std::move(work.tiles)}, runs, work, sequences, arena),
          .device = nullptr,
          .shape = shape};
}

}  // namespace

AttentionPlan plan_beside(const AttentionPlan& plan, std::span<const std::byte> from,
                          int64_t table_offset, std::span<std::byte> arena) {
  CHECK_MSG(plan.bytes <= std::ssize(arena), "attention plan's arena is too small");
  std::memcpy(arena.data(), from.data(), static_cast<size_t>(plan.bytes));
  const auto& header = *reinterpret_cast<const AttentionPlanHeader*>(arena.data());
  const auto move_tables = [&]<class Item>(size_t first, int32_t count) {
    auto* const items = reinterpret_cast<Item*>(arena.data() + first);
    for (int32_t i = 0; i < count; ++i) {
      if (items[i].block_table != nullptr) items[i].block_table += table_offset;
    }
  };
  move_tables.template operator()<AttentionTileWork>(sizeof(AttentionPlanHeader),
                                                     header.decode_count);
  move_tables.template operator()<AttentionTileWork>(static_cast<size_t>(header.prefill_first),
                                                     header.prefill_count);
  move_tables.template operator()<AttentionPageRun>(static_cast<size_t>(header.runs_first),
                                                    header.run_count);
  if (plan.shape.lists_rows) {
    move_tables.template operator()<AttentionRow>(static_cast<size_t>(header.rows_first),
                                                  header.row_count);
  }
  return plan;
}

int32_t decode_tile_rows(const AttentionPlanShape& shape) {
  return group_of(shape) <= 8 ? 8 : kDecodeTileRowsMax;
}

bool fits_decode_tiles(const AttentionPlanShape& shape) {
  return !shape.latents && group_of(shape) <= kDecodeTileRowsMax;
}

bool splits_prompts(const AttentionPlanShape& shape) {
  return shape.split_prompts && !shape.batch_invariant && !shape.latents;
}

int64_t attention_plan_bytes(const AttentionPlanShape& shape) {
  ArenaPlaces places(PlanParts::kAlignment);
  PlanParts::place(places, shape, counts_max(shape));
  return places.bytes_for(PlanParts::kCount);
}

int64_t attention_partial_bytes(const AttentionPlanShape& shape) {
  if (shape.latents) return latent_partial_bytes(shape);
  return decode_partial_bytes(shape) + prefill_partial_bytes(shape);
}

int64_t prefill_partial_bytes(const AttentionPlanShape& shape) {
  if (!splits_prompts(shape)) return 0;
  const int64_t floats =
      int64_t{prefill_tile_rows(shape.head_dim)} * prefill_partial_floats(shape.head_dim);
  return prompt_partials_max(shape) * shape.kv_heads * floats * 4 + 256;
}

int64_t decode_partial_bytes(const AttentionPlanShape& shape) {
  const int64_t floats = kDecodeTileRowsMax * (int64_t{shape.head_dim} + 2);
  return partial_tiles_max(shape) * shape.kv_heads * floats * 4 + 256;
}

AttentionPlan plan_attention(const AttentionPlanShape& shape,
                             std::span<const AttentionSequence> sequences,
                             std::span<std::byte> arena) {
  std::vector<AttentionSequence> prompts;
  std::vector<AttentionTileWork> decode;
  decode.reserve(sequences.size());
  const bool single_rows =
      std::all_of(sequences.begin(), sequences.end(),
                  [](const auto& sequence) { return sequence.row_count == 1; });
  for (const AttentionSequence& sequence : sequences) {
    if (takes_decode_tiles(shape, sequence.row_count)) {
      cut_rows(shape, sequence, decode_tile_rows(shape), decode);
    } else {
      prompts.push_back(sequence);
    }
  }
  const std::vector<AttentionPageRun> runs = page_runs(shape, prompts);
  const SplitTiles prefill = cut_prompt_keys(shape, cut_prompts(shape, std::move(prompts)));
  SplitTiles cut = cut_keys(shape, std::move(decode));
  longest_first(cut.tiles);
  if (shape.latents) return plan_latents(shape, sequences, runs, prefill.tiles, arena);

  const bool has_prefill = !prefill.tiles.empty();
  const bool has_decode = !cut.tiles.empty();
  // Single rows of many heads are in prefill tiles; those of a later step may be shared out.
  const bool may_split = single_rows && has_prefill && splits_prompts(shape);
  return {.has_prefill = has_prefill,
          .has_decode = has_decode,
          .splits_prompts = prefill.merge_count > 0 || may_split,
          .only_single_rows = single_rows && !has_prefill && has_decode,
          .has_merge = cut.merge_count > 0 || prefill.merge_count > 0,
          .kv_length_max = longest_of(sequences),
          .bytes = write_plan(shape, cut, prefill, runs, {}, sequences, arena),
          .device = nullptr,
          .shape = shape};
}

}  // namespace headrace
