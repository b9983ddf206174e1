// Which thread waits for which in stream.cuh, with the turns of a block's threads and of the copy
// engine drawn at random: two threads fill two rings of other lengths, from one tile into the next;
// nobody waits for ever, no stage is written while it is read, and every warp finds the step of
// both that it multiplies.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gpu/ring_place.h"
#include "ops/linear/protocol_fixture.h"

namespace headrace::stream_protocol_test {
namespace {

struct StreamCase {
  int groups, tiles, steps;  // warpgroups; of a block; of K, a tile
  int stages[2];             // of W's ring, of x's
};

class StreamBlock {
  static constexpr int kBoxes[] = {2, 1};  // of W, of x, a step
  static constexpr int64_t kBytes = 64;

  struct Stage {
    explicit Stage(int warps) : full(1), empty(warps) {}
    ProtocolBarrier full, empty;
    std::optional<int> boxes[2];
    int readers = 0;
  };
  struct Copy {
    int ring, stage, box, step;
  };

 public:
  StreamBlock(uint64_t seed, const StreamCase& of) : rng_(seed), of_(of) {
    for (int ring = 0; ring < 2; ++ring) {
      for (int i = 0; i < of.stages[ring]; ++i) rings_[ring].emplace_back(4 * of.groups);
      actors_.push_back(copier(ring));
    }
    for (int warp = 0; warp < 4 * of.groups; ++warp) actors_.push_back(consumer());
  }

  // False: all wait.
  bool run() {
    constexpr int kPatience = 1'000'000;
    return run_actors(rng_, actors_, copies_, kPatience, [this](const Copy& copy) {
      Stage& to = at(copy.ring, copy.stage);
      EXPECT_EQ(to.readers, 0) << "a stage is written while it is read";
      to.boxes[copy.box] = copy.step;
      to.full.complete(kBytes);
    });
  }

 private:
  Stage& at(int ring, int stage) { return rings_[ring][static_cast<size_t>(stage)]; }
  int steps_in_all() const { return of_.tiles * of_.steps; }

  Actor copier(int ring) {
    RingTurn place;
    for (int step = 0; step < steps_in_all(); ++step) {
      while (!at(ring, place.slot).empty.passes(place.phase ^ 1)) co_await Turn();
      at(ring, place.slot).full.arrive(kBytes * kBoxes[ring]);
      co_await Turn();
      for (int box = 0; box < kBoxes[ring]; ++box) {
        copies_.push_back({ring, place.slot, box, step});
      }
      co_await Turn();
      place.next(of_.stages[ring]);
    }
  }

  void give_back(const int (&stages)[2]) {
    for (int ring = 0; ring < 2; ++ring) {
      if (stages[ring] < 0) continue;
      --at(ring, stages[ring]).readers;
      at(ring, stages[ring]).empty.arrive();
    }
  }

  // A warp that multiplies: what it has multiplied before is given back a step later.
  Actor consumer() {
    RingTurn places[2];
    for (int tile = 0; tile < of_.tiles; ++tile) {
      int before[2] = {-1, -1};
      for (int i = 0; i < of_.steps; ++i) {
        for (int ring = 1; ring >= 0; --ring) {
          const RingTurn& place = places[ring];
          while (!at(ring, place.slot).full.passes(place.phase)) co_await Turn();
          Stage& stage = at(ring, place.slot);
          ++stage.readers;
          for (int box = 0; box < kBoxes[ring]; ++box) {
            EXPECT_EQ(stage.boxes[box], tile * of_.steps + i);
          }
        }
        co_await Turn();
        give_back(before);
        for (int ring = 0; ring < 2; ++ring) {
          before[ring] = places[ring].slot;
          places[ring].next(of_.stages[ring]);
        }
      }
      give_back(before);
    }
  }

  Rng rng_;
  const StreamCase of_;
  std::vector<Stage> rings_[2];
  std::vector<Copy> copies_;
  std::vector<Actor> actors_;
};

TEST(StreamProtocol, NobodyWaitsForEverAndNoStageIsOverwritten) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int steps = 1 + static_cast<int>(seed % 23);
    const int of_x = 3 + static_cast<int>(seed % 6), of_weight = 3 + static_cast<int>(seed % 17);
    for (const int groups : {1, 2}) {
      const StreamCase of{
          .groups = groups, .tiles = 3, .steps = steps, .stages = {of_weight, of_x}};
      ASSERT_TRUE(StreamBlock(seed, of).run());
    }
  }
}

}  // namespace
}  // namespace headrace::stream_protocol_test
