#include "ops/attention/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "base/rng.h"
#include "ops/attention/decode_items.h"

namespace headrace::plan_test {
namespace {

struct Planned {
  std::vector<std::byte> arena;
  AttentionPlan plan;

  AttentionPlanHeader header() const {
    AttentionPlanHeader header;
    std::memcpy(&header, arena.data(), sizeof(header));
    return header;
  }
  std::vector<AttentionTileWork> tiles(int32_t first, int32_t count) const {
    std::vector<AttentionTileWork> tiles(static_cast<size_t>(count));
    if (count > 0) {
      std::memcpy(tiles.data(), arena.data() + first, tiles.size() * sizeof(AttentionTileWork));
    }
    return tiles;
  }
  std::vector<AttentionTileWork> prefill() const {
    return tiles(header().prefill_first, header().prefill_count);
  }
  std::vector<AttentionPageRun> runs() const {
    std::vector<AttentionPageRun> runs(static_cast<size_t>(header().run_count));
    if (!runs.empty()) {
      std::memcpy(runs.data(), arena.data() + header().runs_first,
                  runs.size() * sizeof(AttentionPageRun));
    }
    return runs;
  }
  std::vector<AttentionTileWork> decode() const {
    return tiles(sizeof(AttentionPlanHeader), header().decode_count);
  }
};

Planned plan_of(const AttentionPlanShape& shape, const std::vector<AttentionSequence>& sequences) {
  Planned planned;
  // Poison: a count or a counter that is not written shows.
  planned.arena.resize(static_cast<size_t>(attention_plan_bytes(shape)), std::byte{0xee});
  planned.plan = plan_attention(shape, sequences, planned.arena);
  return planned;
}

constexpr AttentionPlanShape kLlama8b{.query_heads = 32,
                                      .kv_heads = 8,
                                      .head_dim = 128,
                                      .sm_count = 132,
                                      .rows_max = 8192,
                                      .sequences_max = 256};

// A step of sequences one after the other: {rows, length} each.
std::vector<AttentionSequence> step(const std::vector<std::pair<int32_t, int32_t>>& sizes) {
  static const int32_t table[1] = {0};
  std::vector<AttentionSequence> sequences;
  int32_t row = 0;
  for (const auto& [rows, length] : sizes) {
    sequences.push_back({row, rows, length, table});
    row += rows;
  }
  return sequences;
}

// Partial results of a kind of tiles, `bytes_each` of one key head's, are not shared and have room.
void expect_partials(const std::vector<AttentionTileWork>& tiles, const AttentionPlanShape& shape,
                     int64_t bytes_each, int64_t bytes) {
  std::vector<int32_t> partials;
  for (const AttentionTileWork& tile : tiles) {
    if (tile.split_count > 1) partials.push_back(tile.partial_first + tile.split);
  }
  if (partials.empty()) return;
  std::sort(partials.begin(), partials.end());
  EXPECT_EQ(std::adjacent_find(partials.begin(), partials.end()), partials.end());
  EXPECT_LE((int64_t{partials.back()} + 1) * shape.kv_heads * bytes_each, bytes);
}

// Every (row, key it sees) is in exactly one tile of its row; splits of a row are consecutive,
// start at blocks and are numbered without gaps; partial tiles are not shared.
void expect_whole(const Planned& planned, const std::vector<AttentionSequence>& sequences) {
  const AttentionPlanShape& shape = planned.plan.shape;
  std::vector<AttentionTileWork> tiles = planned.prefill();
  for (const AttentionTileWork& tile : tiles) {
    if (!splits_prompts(shape)) {
      EXPECT_EQ(tile.split_count, 1);
    }
    // A step has all its keys, but for the tile's last.
    if (tile.split + 1 < tile.split_count) {
      EXPECT_EQ((tile.key_last - tile.step_first) % kPrefillSteps, 0);
    }
  }
  expect_partials(
      tiles, shape,
      int64_t{4} * prefill_tile_rows(shape.head_dim) * prefill_partial_floats(shape.head_dim),
      prefill_partial_bytes(shape));
  const std::vector<AttentionTileWork> decode = planned.decode();
  expect_partials(decode, shape, int64_t{4} * kDecodeTileRowsMax * (shape.head_dim + 2),
                  decode_partial_bytes(shape));
  tiles.insert(tiles.end(), decode.begin(), decode.end());
  std::map<int32_t, std::vector<AttentionTileWork>> of_row;
  for (const AttentionTileWork& tile : tiles) {
    EXPECT_GT(tile.row_count, 0);
    EXPECT_LT(tile.key_first, tile.key_last);
    EXPECT_EQ(tile.key_first % shape.block_tokens, 0);
    for (int32_t r = 0; r < tile.row_count; ++r) of_row[tile.row_first + r].push_back(tile);
  }
  for (const AttentionSequence& sequence : sequences) {
    for (int32_t r = 0; r < sequence.row_count; ++r) {
      auto& parts = of_row[sequence.row_first + r];
      ASSERT_FALSE(parts.empty());
      std::sort(parts.begin(), parts.end(),
                [](const auto& a, const auto& b) { return a.split < b.split; });
      const int32_t position = sequence.kv_length - sequence.row_count + r;
      int32_t seen = shape.window > 0 ? std::max(0, position + 1 - shape.window) : 0;
      if (shape.chunk > 0) seen = position - position % shape.chunk;
      EXPECT_LE(parts.front().key_first, seen);
      EXPECT_GT(parts.back().key_last, position);
      EXPECT_LE(parts.back().key_last, sequence.kv_length);
      EXPECT_EQ(parts.front().split_count, static_cast<int32_t>(parts.size()));
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].split, static_cast<int32_t>(i));
        EXPECT_EQ(parts[i].position + (sequence.row_first + r - parts[i].row_first), position);
        if (i > 0) {
          EXPECT_EQ(parts[i].key_first, parts[i - 1].key_last);
        }
      }
    }
  }
}

TEST(AttentionPlan, CutsEveryStepWhole) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    AttentionPlanShape shape = kLlama8b;
    const int32_t groups[] = {1, 2, 3, 4, 7, 8, 12, 16, 71};
    shape.kv_heads = static_cast<int32_t>(rng.between(1, 16));
    shape.query_heads = shape.kv_heads * groups[rng.below(9)];
    shape.window = rng.below(3) == 0 ? static_cast<int32_t>(rng.between(1, 3000)) : 0;
    if (rng.below(2) == 0) shape.chunk = shape.window;
    shape.sm_count = static_cast<int32_t>(rng.between(1, 200));
    shape.split_prompts = rng.below(2) == 0;
    std::vector<std::pair<int32_t, int32_t>> sizes;
    int32_t rows = 0;
    const auto count = static_cast<int32_t>(rng.between(1, shape.sequences_max));
    for (int32_t i = 0; i < count; ++i) {
      const auto most = std::min<int32_t>(rng.below(4) == 0 ? 700 : 1, shape.rows_max - rows);
      if (most == 0) break;
      const auto n = static_cast<int32_t>(rng.between(1, most));
      sizes.push_back({n, n + static_cast<int32_t>(rng.between(0, 40000))});
      rows += n;
    }
    const auto sequences = step(sizes);
    const Planned planned = plan_of(shape, sequences);
    EXPECT_LE(planned.plan.bytes, attention_plan_bytes(shape));
    expect_whole(planned, sequences);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(AttentionPlan, OneLongSequenceIsSharedOut) {
  const auto sequences = step({{1, 32768}});
  const Planned planned = plan_of(kLlama8b, sequences);
  const auto tiles = planned.decode();
  // At least one item a multiprocessor, and even ones.
  EXPECT_GE(static_cast<int32_t>(tiles.size()) * kLlama8b.kv_heads, kLlama8b.sm_count);
  EXPECT_LE(tiles.front().key_last - tiles.front().key_first,
            2 * (tiles.back().key_last - tiles.back().key_first));
}

TEST(AttentionPlan, ManyEqualSequencesAreNotSplit) {
  std::vector<std::pair<int32_t, int32_t>> sizes(256, {1, 1024});
  const Planned planned = plan_of(kLlama8b, step(sizes));
  EXPECT_EQ(planned.header().decode_count, 256);
  EXPECT_FALSE(planned.plan.has_merge);
}

// One long sequence beside short ones takes no longer than its share.
TEST(AttentionPlan, ASkewedStepIsEven) {
  std::vector<std::pair<int32_t, int32_t>> sizes(63, {1, 256});
  sizes.push_back({1, 32768});
  const Planned planned = plan_of(kLlama8b, step(sizes));
  int64_t keys = 0;
  int32_t longest = 0;
  for (const AttentionTileWork& tile : planned.decode()) {
    keys += tile.key_last - tile.key_first;
    longest = std::max(longest, tile.key_last - tile.key_first);
  }
  EXPECT_LE(int64_t{longest} * kLlama8b.sm_count, keys * kLlama8b.kv_heads);
}

TEST(AttentionPlan, LongTilesComeFirst) {
  const Planned planned = plan_of(kLlama8b, step({{1, 100}, {500, 900}, {1, 5000}, {64, 64}}));
  for (const auto& tiles : {planned.prefill(), planned.decode()}) {
    EXPECT_FALSE(tiles.empty());
    EXPECT_TRUE(std::is_sorted(tiles.begin(), tiles.end(), [](const auto& a, const auto& b) {
      return a.key_last - a.key_first > b.key_last - b.key_first;
    }));
  }
}

// 16 prompts of 4 MB of keys and values each: three at a time, so that a section's are still in the
// L2 cache when its shorter tiles read them again.
TEST(AttentionPlan, PromptsComeInSectionsThatTheCacheHolds) {
  constexpr int32_t kPrompts = 16, kLength = 1024, kTiles = kLength / 32;
  AttentionPlanShape shape = kLlama8b;
  shape.rows_max = kPrompts * kLength;
  const auto sequences =
      step(std::vector<std::pair<int32_t, int32_t>>(kPrompts, {kLength, kLength}));
  const Planned planned = plan_of(shape, sequences);
  expect_whole(planned, sequences);
  const auto tiles = planned.prefill();
  ASSERT_EQ(tiles.size(), size_t{kPrompts} * kTiles);
  for (size_t i = 0; i < tiles.size(); ++i) {
    const size_t section = i / (3 * kTiles);
    EXPECT_EQ(static_cast<size_t>(tiles[i].row_first / kLength / 3), section);
    if (i % (3 * kTiles) > 0) {
      EXPECT_LE(tiles[i].key_last, tiles[i - 1].key_last);
    }
  }
  shape.section_bytes = 0;
  const auto whole = plan_of(shape, sequences).prefill();
  EXPECT_TRUE(std::is_sorted(whole.begin(), whole.end(),
                             [](const auto& a, const auto& b) { return a.key_last > b.key_last; }));
}

// The end of a long prompt, whose few tiles take longest, is not left for last.
TEST(AttentionPlan, TheLongestPromptComesFirst) {
  AttentionPlanShape shape = kLlama8b;
  const Planned planned = plan_of(shape, step({{4000, 4000}, {3000, 3000}, {128, 32768}}));
  const auto tiles = planned.prefill();
  for (size_t i = 0; i < 4; ++i) EXPECT_GT(tiles[i].key_last, 32000);
  EXPECT_LE(tiles.back().key_last, 32);
}

// What the thread blocks of a decode kernel read where nothing is handed out: keys of their first
// and their second item. Expects that they have every item once.
std::vector<int64_t> keys_of_blocks(const Planned& planned, int32_t blocks) {
  const std::vector<AttentionTileWork> tiles = planned.decode();
  const int32_t kv_heads = planned.plan.shape.kv_heads;
  const int32_t items = static_cast<int32_t>(tiles.size()) * kv_heads;
  std::vector<int> times(static_cast<size_t>(items));
  std::vector<int64_t> keys(static_cast<size_t>(blocks));
  for (int32_t block = 0; block < blocks; ++block) {
    for (const int32_t item : {block, second_decode_item(block, blocks)}) {
      if (item >= items) continue;
      ++times[static_cast<size_t>(item)];
      const AttentionTileWork& tile = tiles[static_cast<size_t>(item / kv_heads)];
      keys[static_cast<size_t>(block)] += tile.key_last - tile.key_first;
    }
  }
  EXPECT_EQ(std::count(times.begin(), times.end(), 1), items);
  return keys;
}

// The keys of the block with most of them, where each item in turn, longest first, is given to the
// block that has fewest.
int64_t most_keys_when_evened(const Planned& planned, int32_t blocks) {
  std::vector<int64_t> keys(static_cast<size_t>(blocks));
  for (const AttentionTileWork& tile : planned.decode()) {
    for (int32_t head = 0; head < planned.plan.shape.kv_heads; ++head) {
      *std::min_element(keys.begin(), keys.end()) += tile.key_last - tile.key_first;
    }
  }
  return *std::max_element(keys.begin(), keys.end());
}

// Up to two items a thread block, of lengths within a factor of two, are as even as they can be
// given out: every block has one or two.
TEST(AttentionPlan, TheFirstTwoItemsOfABlockAreEven) {
  Rng rng(23);
  for (const int32_t count : {1, 20, 33, 34, 40, 64, 66}) {
    for (const int32_t window : {0, 150}) {
      AttentionPlanShape shape = kLlama8b;
      shape.window = window;
      std::vector<std::pair<int32_t, int32_t>> sizes;
      for (int32_t i = 0; i < count; ++i) {
        sizes.push_back({1, static_cast<int32_t>(rng.between(130, 260))});
      }
      const Planned planned = plan_of(shape, step(sizes));
      const int32_t blocks = 2 * shape.sm_count;
      const std::vector<int64_t> keys = keys_of_blocks(planned, blocks);
      EXPECT_EQ(*std::max_element(keys.begin(), keys.end()), most_keys_when_evened(planned, blocks))
          << count;
    }
  }
}

// A long sequence's splits are items as all others: no block has more than one of them and a short
// one.
TEST(AttentionPlan, TheFirstTwoItemsOfABlockWithSplits) {
  const Planned planned = plan_of(kLlama8b, step({{1, 12000}, {1, 9000}, {1, 300}, {1, 250}}));
  const int32_t blocks = 2 * kLlama8b.sm_count;
  ASSERT_TRUE(planned.plan.has_merge);
  ASSERT_GT(planned.header().decode_count * kLlama8b.kv_heads, blocks);
  const std::vector<int64_t> keys = keys_of_blocks(planned, blocks);
  EXPECT_LE(*std::max_element(keys.begin(), keys.end()),
            most_keys_when_evened(planned, blocks) * 5 / 4);
}

TEST(AttentionPlan, AWindowLeavesOldKeysOut) {
  AttentionPlanShape shape = kLlama8b;
  shape.window = 100;
  const Planned planned = plan_of(shape, step({{1, 5000}, {300, 4000}}));
  for (const AttentionTileWork& tile : planned.decode()) EXPECT_EQ(tile.key_first, 4896);
  for (const AttentionTileWork& tile : planned.prefill()) {
    EXPECT_LE(tile.key_last - tile.key_first, 100 + 32 + 16);
  }
}

TEST(AttentionPlan, AChunkLeavesTheKeysOfOthersOut) {
  AttentionPlanShape shape = kLlama8b;
  shape.window = shape.chunk = 500;
  const auto sequences = step({{1, 5120}, {1, 5000}, {1, 5001}, {300, 4200}});
  const Planned planned = plan_of(shape, sequences);
  expect_whole(planned, sequences);
  for (const AttentionTileWork& tile : planned.decode()) {
    // The page of the first key of the run: 5000, or 4500, whose last row is 4999.
    EXPECT_EQ(tile.key_first, tile.position >= 5000 ? 4992 : 4496);
  }
  for (const AttentionTileWork& tile : planned.prefill()) {
    EXPECT_EQ(tile.key_first, tile.position >= 4000 ? 4000 : 3488);
  }
}

// One kind of tile for every row, steps at absolute places, nothing merged.
TEST(AttentionPlan, BatchInvariantTiles) {
  AttentionPlanShape shape = kLlama8b;
  shape.batch_invariant = true;
  shape.window = 300;
  const auto sequences = step({{1, 5000}, {70, 900}, {1, 1}});
  const Planned planned = plan_of(shape, sequences);
  expect_whole(planned, sequences);
  EXPECT_FALSE(planned.plan.has_decode || planned.plan.has_merge);
  for (const AttentionTileWork& tile : planned.prefill()) {
    EXPECT_EQ(tile.step_first % kPrefillSteps, 0);
    EXPECT_LE(tile.step_first, tile.key_first);
    EXPECT_GT(tile.step_first + kPrefillSteps, tile.key_first);
  }
}

// The tiles of a chunk are few: their keys are shared out over one round of the multiprocessors.
TEST(AttentionPlan, AChunkBehindALongContextIsSharedOut) {
  AttentionPlanShape shape = kLlama8b;
  shape.split_prompts = true;
  for (const int32_t rows : {32, 64, 128, 256}) {
    const auto sequences = step({{rows, 32768}});
    const Planned planned = plan_of(shape, sequences);
    expect_whole(planned, sequences);
    const int32_t items = planned.header().prefill_count * shape.kv_heads;
    EXPECT_GT(items, shape.sm_count * 9 / 10) << rows;
    EXPECT_LE(items, shape.sm_count) << rows;
    EXPECT_TRUE(planned.plan.has_merge);
  }
}

TEST(AttentionPlan, PromptsThatFillTheDeviceAreNotSplit) {
  AttentionPlanShape shape = kLlama8b;
  shape.split_prompts = true;
  for (const auto& sizes : {std::vector<std::pair<int32_t, int32_t>>{{512, 8192}},
                            {{700, 700}},
                            {{4096, 4096}},
                            {{100, 400}}}) {
    EXPECT_FALSE(plan_of(shape, step(sizes)).plan.has_merge);
  }
  shape.batch_invariant = true;
  EXPECT_FALSE(plan_of(shape, step({{32, 32768}})).plan.has_merge);
  EXPECT_EQ(prefill_partial_bytes(shape), 0);
}

// Every row is the newest of its sequence: what kernels that make their own rows ask for.
TEST(AttentionPlan, SingleRows) {
  const auto only_single = [](const AttentionPlanShape& shape, const auto& sizes) {
    return plan_of(shape, step(sizes)).plan.only_single_rows;
  };
  using Sizes = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_TRUE(only_single(kLlama8b, Sizes{{1, 1}, {1, 700}, {1, 30000}}));
  EXPECT_FALSE(only_single(kLlama8b, Sizes{{1, 1}, {2, 700}}));
  EXPECT_FALSE(only_single(kLlama8b, Sizes{{1, 1}, {200, 700}}));
  EXPECT_FALSE(only_single(kLlama8b, Sizes{}));
  AttentionPlanShape invariant = kLlama8b;
  invariant.batch_invariant = true;
  EXPECT_FALSE(only_single(invariant, Sizes{{1, 700}}));
  // The newest key is in the last split alone, at its end.
  for (const AttentionTileWork& tile : plan_of(kLlama8b, step({{1, 30001}})).decode()) {
    EXPECT_EQ(tile.key_last > tile.position, tile.split + 1 == tile.split_count);
    EXPECT_LE(tile.key_last, tile.position + 1);
  }
}

// Behind them a step is padding.
TEST(AttentionPlan, KnowsTheRowsOfItsSequences) {
  EXPECT_EQ(plan_of(kLlama8b, step({{1, 700}, {1, 30000}, {1, 1}})).header().row_count, 3);
  EXPECT_EQ(plan_of(kLlama8b, step({{200, 700}, {1, 9}})).header().row_count, 201);
}

// Where layers choose keys row by row: the table and position of each; a row of no sequence has
// none.
TEST(AttentionPlan, ListsRowsWhereItIsAsked) {
  AttentionPlanShape shape = kLlama8b;
  shape.lists_rows = true;
  std::vector<AttentionSequence> sequences = step({{3, 700}, {1, 30000}, {2, 2}});
  sequences.back().row_first = 5;
  const Planned planned = plan_of(shape, sequences);
  EXPECT_EQ(planned.plan.kv_length_max, 30000);
  std::vector<AttentionRow> rows(7);
  ASSERT_EQ(planned.header().row_count, 7);
  std::memcpy(rows.data(), planned.arena.data() + planned.header().rows_first,
              rows.size() * sizeof(AttentionRow));
  const int32_t positions[] = {697, 698, 699, 29999, -1, 0, 1};
  for (size_t r = 0; r < rows.size(); ++r) EXPECT_EQ(rows[r].position, positions[r]);
  EXPECT_EQ(rows[2].block_table, sequences[0].block_table);
  EXPECT_EQ(rows[4].block_table, nullptr);
  EXPECT_EQ(rows[6].block_table, sequences[2].block_table);

  Planned beside;
  beside.arena.resize(planned.arena.size());
  beside.plan = plan_beside(planned.plan, planned.arena, 8, beside.arena);
  std::memcpy(rows.data(), beside.arena.data() + beside.header().rows_first,
              rows.size() * sizeof(AttentionRow));
  EXPECT_EQ(rows[3].block_table, sequences[1].block_table + 8);
  EXPECT_EQ(rows[4].block_table, nullptr);
}

// A step of single rows is recorded with one key a row and replayed with any lengths: what decides
// which kernels are launched is the same.
TEST(AttentionPlan, SingleRowsLaunchTheSameKernelsWhateverTheirLengths) {
  for (const int32_t query_heads : {8, 16, 20, 71}) {
    for (const int32_t head_dim : {64, 128}) {
      for (const bool batch_invariant : {false, true}) {
        const AttentionPlanShape shape{.query_heads = query_heads,
                                       .kv_heads = 1,
                                       .head_dim = head_dim,
                                       .sm_count = 132,
                                       .rows_max = 256,
                                       .sequences_max = 256,
                                       .batch_invariant = batch_invariant,
                                       .split_prompts = true};
        const auto launches = [&](const std::vector<std::pair<int32_t, int32_t>>& sizes) {
          const auto sequences = step(sizes);
          const Planned planned = plan_of(shape, sequences);
          expect_whole(planned, sequences);
          const AttentionPlan& plan = planned.plan;
          return std::array{plan.has_prefill, plan.has_decode, plan.splits_prompts,
                            plan.only_single_rows};
        };
        const auto recorded = launches({{1, 1}, {1, 1}, {1, 1}, {1, 1}});
        for (const int32_t length : {16, 512, 513, 700, 5000, 100000}) {
          EXPECT_EQ(launches({{1, length}}), recorded) << query_heads << " " << length;
          EXPECT_EQ(launches({{1, 9}, {1, length}, {1, 2}}), recorded) << query_heads;
        }
        // Where tiles are shared out, the kernel that was recorded can merge.
        EXPECT_EQ(plan_of(shape, step({{1, 5000}})).plan.has_merge, !batch_invariant);
      }
    }
  }
}

// The same tiles, of decodes and prompts, shared out and whole, through other tables.
// The pages of sequences with prefill tiles, each once: behind their windows' ends, to the last
// one.
TEST(AttentionPlan, RunsArePagesOfPrefillTiles) {
  AttentionPlanShape shape = kLlama8b;
  for (const int32_t window : {0, 100}) {
    for (const bool batch_invariant : {false, true}) {
      shape.window = window;
      shape.batch_invariant = batch_invariant;
      const Planned planned =
          plan_of(shape, step({{1, 5000}, {300, 300}, {40, 1007}, {1, 17}, {2000, 9000}}));
      std::vector<int32_t> pages;  // [sequences]: those that tiles read, from the first to the last
      int32_t before = 0;
      for (const AttentionPageRun& run : planned.runs()) {
        EXPECT_EQ(run.before, before);
        before += run.page_count;
        pages.push_back(run.page_count);
      }
      EXPECT_EQ(planned.header().run_pages, before);
      int32_t first = 1 << 30, last = 0;  // of the chunk of 40 rows
      for (const AttentionTileWork& tile : planned.prefill()) {
        if (tile.row_first < 301 || tile.row_first >= 341) continue;
        first = std::min(first, tile.key_first / 16);
        last = std::max(last, (tile.key_last + 15) / 16);
      }
      ASSERT_EQ(pages.size(), batch_invariant ? 5u : 3u);
      const AttentionPageRun chunk = planned.runs()[batch_invariant ? 2 : 1];
      EXPECT_EQ(chunk.page_first, window == 0 ? 0 : (1007 - 40 + 1 - window) / 16);
      EXPECT_EQ(chunk.page_first, first);
      EXPECT_EQ(chunk.page_first + chunk.page_count, last);
    }
  }
}

TEST(AttentionPlan, OfLayersBesideMovesTheTablesAlone) {
  constexpr int64_t kOffset = 1000;
  AttentionPlanShape shape = kLlama8b;
  shape.split_prompts = true;
  for (const auto& sizes : std::vector<std::vector<std::pair<int32_t, int32_t>>>{
           {{1, 20000}, {1, 5}, {700, 900}, {1, 100}}, {{1, 1}}, {{44, 32000}}, {}}) {
    const Planned plan = plan_of(shape, step(sizes));
    Planned beside;
    beside.arena.resize(plan.arena.size(), std::byte{0xee});
    beside.plan = plan_beside(plan.plan, plan.arena, kOffset, beside.arena);
    EXPECT_EQ(beside.plan.bytes, plan.plan.bytes);
    EXPECT_EQ(beside.plan.has_prefill, plan.plan.has_prefill);
    EXPECT_EQ(beside.plan.has_decode, plan.plan.has_decode);
    Planned back = beside;
    const auto move = [&](size_t first, int32_t count) {
      auto* const tiles = reinterpret_cast<AttentionTileWork*>(back.arena.data() + first);
      for (int32_t i = 0; i < count; ++i) tiles[i].block_table -= kOffset;
    };
    auto* const runs =
        reinterpret_cast<AttentionPageRun*>(back.arena.data() + plan.header().runs_first);
    for (int32_t i = 0; i < plan.header().run_count; ++i) runs[i].block_table -= kOffset;
    move(sizeof(AttentionPlanHeader), plan.header().decode_count);
    move(static_cast<size_t>(plan.header().prefill_first), plan.header().prefill_count);
    EXPECT_EQ(back.arena, plan.arena);
    EXPECT_EQ(plan.decode().size() + plan.prefill().size() > 0, !sizes.empty());
  }
}

TEST(AttentionPlan, AnEmptyStepHasNoWork) {
  const Planned planned = plan_of(kLlama8b, {});
  EXPECT_EQ(planned.header().row_count, 0);
  EXPECT_EQ(planned.header().prefill_count, 0);
  EXPECT_EQ(planned.header().decode_count, 0);
  EXPECT_EQ(planned.header().run_pages, 0);
  EXPECT_FALSE(planned.plan.has_prefill || planned.plan.has_decode || planned.plan.has_merge);
}

}  // namespace
}  // namespace headrace::plan_test
