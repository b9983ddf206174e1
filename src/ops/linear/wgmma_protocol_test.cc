// Which thread waits for which in wgmma.cuh, with the turns of a cluster's threads and of the copy
// engine drawn at random: nobody waits for ever, no stage is written while it is read, and every
// warp finds the step that it multiplies. Barriers as the PTX ISA has them (mbarrier).
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gpu/ring_place.h"
#include "ops/linear/protocol_fixture.h"
#include "ops/linear/wgmma_layout.h"

namespace headrace::wgmma_protocol_test {
namespace {

constexpr int kParts = 1 + kWgmmaBlocks;  // of a stage: x, and a part of W from each block

struct Stage {
  ProtocolBarrier full{1}, empty{kWgmmaBlocks * kWgmmaGroups * 4};
  std::optional<int> parts[kParts];  // which step they are of
  int readers = 0;
};
struct Copy {
  int block, stage, part, step;
  int64_t bytes;
};

template <int kTile>
class Cluster {
  using Shape = WgmmaShape<kTile>;

 public:
  Cluster(uint64_t seed, int tiles, int steps) : rng_(seed), tiles_(tiles), steps_(steps) {
    for (int block = 0; block < kWgmmaBlocks; ++block) {
      actors_.push_back(producer(block));
      for (int warp = 0; warp < 4 * kWgmmaGroups; ++warp) actors_.push_back(consumer(block));
    }
  }

  // False: all wait.
  bool run() {
    constexpr int kPatience = 200'000;
    return run_actors(rng_, actors_, copies_, kPatience, [this](const Copy& copy) { land(copy); });
  }

 private:
  Stage& at(int block, int stage) {
    return stages_[static_cast<size_t>(block * Shape::kStages + stage)];
  }

  void land(const Copy& copy) {
    Stage& to = at(copy.block, copy.stage);
    EXPECT_EQ(to.readers, 0) << "a stage is written while it is read";
    to.parts[copy.part] = copy.step;
    to.full.complete(copy.bytes);
  }

  Actor producer(int block) {
    RingPlace<Shape::kStages> place;
    for (int step = 0; step < tiles_ * steps_; ++step) {
      while (!at(block, place.slot).empty.passes(place.parity ^ 1)) co_await Turn();
      at(block, place.slot).full.arrive(Shape::kStageBytes);
      co_await Turn();
      copies_.push_back({block, place.slot, 0, step, Shape::kXBytes});
      for (int to = 0; to < kWgmmaBlocks; ++to) {
        copies_.push_back({to, place.slot, 1 + block, step, Shape::kHalfBytes});
      }
      co_await Turn();
      place.advance();
    }
  }

  // A warp of a warpgroup that multiplies.
  Actor consumer(int block) {
    RingPlace<Shape::kStages> place;
    int before = -1;
    for (int step = 0; step < tiles_ * steps_; ++step) {
      while (!at(block, place.slot).full.passes(place.parity)) co_await Turn();
      Stage& mine = at(block, place.slot);
      ++mine.readers;
      for (const auto& part : mine.parts) EXPECT_EQ(part, step);
      co_await Turn();
      for (const int ended : {before, (step + 1) % steps_ == 0 ? place.slot : -1}) {
        if (ended < 0) continue;
        --at(block, ended).readers;
        for (int to = 0; to < kWgmmaBlocks; ++to) at(to, ended).empty.arrive();
      }
      before = (step + 1) % steps_ == 0 ? -1 : place.slot;
      place.advance();
    }
  }

  Rng rng_;
  const int tiles_, steps_;
  std::vector<Stage> stages_ = std::vector<Stage>(kWgmmaBlocks * Shape::kStages);
  std::vector<Copy> copies_;
  std::vector<Actor> actors_;
};

TEST(LinearWgmmaProtocol, NobodyWaitsForEverAndNoStageIsOverwritten) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int steps = 1 + static_cast<int>(seed % 9);
    ASSERT_TRUE(Cluster<256>(seed, 3, steps).run());
    ASSERT_TRUE(Cluster<128>(seed, 3, steps).run());
  }
}

}  // namespace
}  // namespace headrace::wgmma_protocol_test
