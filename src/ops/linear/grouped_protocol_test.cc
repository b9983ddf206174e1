// Which thread waits for which in grouped.cuh, with the turns of a cluster's threads, of the copy
// engine and of copies by threads drawn at random, over tiles that blocks share or split and
// warpgroups that have no rows: nobody waits for ever, no stage is written while it is read, and
// every warp finds the step that it multiplies.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gpu/ring_place.h"
#include "ops/linear/grouped_layout.h"
#include "ops/linear/protocol_fixture.h"

namespace headrace::grouped_protocol_test {
namespace {

// What a cluster does for a tile.
struct TurnOfTile {
  bool split;      // each block has its own tile of W
  uint64_t idles;  // bit 2 block + group: a warpgroup without rows
};

template <class Shape>
class GroupedCluster {
  static constexpr int kBlocks = Shape::kBlocks;
  static constexpr int kRowWarps = Shape::kRowThreads / 32;
  static constexpr int kHalves = 2;  // of W
  static constexpr int kParts = kHalves + kRowWarps;

  struct Stage {
    ProtocolBarrier full{1 + Shape::kRowThreads}, empty{kBlocks * Shape::kGroups * 4};
    std::optional<int> parts[kParts];  // which step they are of
    int readers = 0;
  };
  struct Copy {
    int block, stage, part, step;
    int64_t bytes;  // of the engine; 0: a warp's, whose threads arrive when it is there
  };

 public:
  GroupedCluster(uint64_t seed, int tiles, int steps) : rng_(seed), steps_(steps) {
    for (int i = 0; i < tiles; ++i) {
      tiles_.push_back({kBlocks == 1 || rng_.below(2) == 0, rng_.below(3) == 0 ? rng_.next() : 0});
    }
    for (int block = 0; block < kBlocks; ++block) {
      actors_.push_back(weight_copier(block));
      for (int warp = 0; warp < kRowWarps; ++warp) actors_.push_back(row_copier(block, warp));
      for (int warp = 0; warp < 4 * Shape::kGroups; ++warp) {
        actors_.push_back(consumer(block, warp / 4));
      }
    }
  }

  // False: all wait.
  bool run() {
    constexpr int kPatience = 400'000;
    return run_actors(rng_, actors_, copies_, kPatience, [this](const Copy& copy) { land(copy); });
  }

 private:
  using Position = RingPlace<Shape::kStages>;

  int steps_in_all() const { return static_cast<int>(tiles_.size()) * steps_; }
  const TurnOfTile& tile_of(int step) const { return tiles_[static_cast<size_t>(step / steps_)]; }
  Stage& at(int block, int stage) {
    return stages_[static_cast<size_t>(block * Shape::kStages + stage)];
  }

  void land(const Copy& copy) {
    Stage& to = at(copy.block, copy.stage);
    EXPECT_EQ(to.readers, 0) << "a stage is written while it is read";
    to.parts[copy.part] = copy.step;
    if (copy.bytes > 0) return to.full.complete(copy.bytes);
    for (int thread = 0; thread < 32; ++thread) to.full.arrive();
  }

  Actor weight_copier(int block) {
    Position place;
    for (int step = 0; step < steps_in_all(); ++step) {
      while (!at(block, place.slot).empty.passes(place.parity ^ 1)) co_await Turn();
      at(block, place.slot).full.arrive(Shape::kWeightBytes);
      co_await Turn();
      if (tile_of(step).split) {
        for (int half = 0; half < kHalves; ++half) {
          copies_.push_back({block, place.slot, half, step, Shape::kHalfBytes});
        }
      } else {
        for (int to = 0; to < kBlocks; ++to) {
          copies_.push_back({to, place.slot, block, step, Shape::kHalfBytes});
        }
      }
      co_await Turn();
      place.advance();
    }
  }

  Actor row_copier(int block, int warp) {
    Position place;
    for (int step = 0; step < steps_in_all(); ++step) {
      while (!at(block, place.slot).empty.passes(place.parity ^ 1)) co_await Turn();
      copies_.push_back({block, place.slot, kHalves + warp, step, 0});
      co_await Turn();
      place.advance();
    }
  }

  void release(int block, int stage) {
    --at(block, stage).readers;
    for (int to = 0; to < kBlocks; ++to) at(to, stage).empty.arrive();
  }

  // A warp of a warpgroup that multiplies.
  Actor consumer(int block, int group) {
    Position place;
    int before = -1;
    for (int step = 0; step < steps_in_all(); ++step) {
      while (!at(block, place.slot).full.passes(place.parity)) co_await Turn();
      Stage& mine = at(block, place.slot);
      ++mine.readers;
      for (const auto& part : mine.parts) EXPECT_EQ(part, step);
      co_await Turn();
      if ((tile_of(step).idles >> (2 * block + group) & 1) != 0) {
        release(block, place.slot);
      } else {
        if (before >= 0) release(block, before);
        before = place.slot;
        if ((step + 1) % steps_ == 0) release(block, std::exchange(before, -1));
      }
      place.advance();
    }
  }

  Rng rng_;
  const int steps_;
  std::vector<TurnOfTile> tiles_;
  std::vector<Stage> stages_ = std::vector<Stage>(kBlocks * Shape::kStages);
  std::vector<Copy> copies_;
  std::vector<Actor> actors_;
};

TEST(GroupedProtocol, NobodyWaitsForEverAndNoStageIsOverwritten) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int steps = 1 + static_cast<int>(seed % 9);
    ASSERT_TRUE((GroupedCluster<GroupedShape<1, 64, 1>>(seed, 5, steps).run()));
    ASSERT_TRUE((GroupedCluster<GroupedShape<1, 128, 1>>(seed, 5, steps).run()));
    ASSERT_TRUE((GroupedCluster<GroupedShape<2, 256, 2>>(seed, 5, steps).run()));
  }
}

}  // namespace
}  // namespace headrace::grouped_protocol_test
