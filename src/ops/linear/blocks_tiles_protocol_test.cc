// Which thread waits for which in blocks_tiles.cuh, with the turns of a cluster's threads and of
// the copy engine drawn at random, over units that follow each other in both rings: nobody waits
// for ever, no stage is written while it is read, and every warp finds the steps that it
// multiplies.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gpu/ring_place.h"
#include "ops/linear/protocol_fixture.h"
#include "ops/linear/tiles_layout.h"

namespace headrace::blocks_tiles_protocol_test {
namespace {

struct TilesCase {
  int sharers, units, steps;  // of a cluster; of K
  int w_chunks, x_chunks;     // of a stage of W and of x
  int w_slots, x_slots;
};

class TilesCluster {
  static constexpr int kWarps = kBlocksWideWarps;
  static constexpr int64_t kBytes = 64;

  struct WStage {
    ProtocolBarrier arrived{1}, read{1};
    std::optional<int> step;  // of W's stages, counted over all units
    int readers = 0;
  };
  struct XStage {
    explicit XStage(int sharers)
        : full(1), empty(sharers * kWarps), parts(static_cast<size_t>(sharers)) {}
    ProtocolBarrier full, empty;
    std::vector<std::optional<int>> parts;
    int readers = 0;
  };
  struct Copy {
    int block, warp, slot, part, step;  // warp < 0: of x
  };

 public:
  TilesCluster(uint64_t seed, const TilesCase& of) : rng_(seed), of_(of) {
    for (int block = 0; block < of.sharers; ++block) {
      for (int i = 0; i < kWarps * of.w_slots; ++i) w_.emplace_back();
      for (int i = 0; i < of.x_slots; ++i) x_.emplace_back(of.sharers);
    }
    for (int block = 0; block < of.sharers; ++block) {
      actors_.push_back(weight_copier(block));
      actors_.push_back(x_copier(block));
      for (int warp = 0; warp < kWarps; ++warp) actors_.push_back(consumer(block, warp));
    }
  }

  // False: all wait.
  bool run() {
    constexpr int kPatience = 4'000'000;
    return run_actors(rng_, actors_, copies_, kPatience, [this](const Copy& copy) { land(copy); });
  }

 private:
  WStage& w(int block, int warp, int slot) {
    return w_[static_cast<size_t>((block * kWarps + warp) * of_.w_slots + slot)];
  }
  XStage& x(int block, int slot) { return x_[static_cast<size_t>(block * of_.x_slots + slot)]; }
  int chunks() const { return of_.steps * kWideStepChunks; }  // of a unit

  void land(const Copy& copy) {
    if (copy.warp >= 0) {
      WStage& to = w(copy.block, copy.warp, copy.slot);
      EXPECT_EQ(to.readers, 0) << "a stage of W is written while it is read";
      to.step = copy.step;
      return to.arrived.complete(kBytes);
    }
    XStage& to = x(copy.block, copy.slot);
    EXPECT_EQ(to.readers, 0) << "a stage of x is written while it is read";
    to.parts[static_cast<size_t>(copy.part)] = copy.step;
    to.full.complete(kBytes);
  }

  // Lanes of a warp, a ring each, which wait for the slowest.
  Actor weight_copier(int block) {
    RingTurn turn;
    for (int step = 0; step < of_.units * chunks() / of_.w_chunks; ++step) {
      for (int warp = 0; warp < kWarps; ++warp) {
        while (!w(block, warp, turn.slot).read.passes(turn.phase ^ 1)) co_await Turn();
        w(block, warp, turn.slot).arrived.arrive(kBytes);
        copies_.push_back({block, warp, turn.slot, 0, step});
      }
      co_await Turn();
      turn.next(of_.w_slots);
    }
  }

  // This block's part of each stage, to all sharers.
  Actor x_copier(int block) {
    RingTurn turn;
    for (int step = 0; step < of_.units * chunks() / of_.x_chunks; ++step) {
      while (!x(block, turn.slot).empty.passes(turn.phase ^ 1)) co_await Turn();
      x(block, turn.slot).full.arrive(kBytes * of_.sharers);
      co_await Turn();
      for (int to = 0; to < of_.sharers; ++to) {
        copies_.push_back({to, -1, turn.slot, block, step});
      }
      co_await Turn();
      turn.next(of_.x_slots);
    }
  }

  void release(int block, int slot) {
    --x(block, slot).readers;
    for (int to = 0; to < of_.sharers; ++to) x(to, slot).empty.arrive();
  }

  // A warp that multiplies: products of a chunk run while the next is unpacked, and towards the end
  // of a stage of W the scales of the next, of this unit or the one behind it, are read, while it
  // keeps two stages of x.
  Actor consumer(int block, int warp) {
    RingTurn w_turn, x_turn, opened;
    int w_step = 0, x_step = 0;
    const int w_steps = of_.units * chunks() / of_.w_chunks;
    for (int unit = 0; unit < of_.units; ++unit) {
      int running = -1;  // the stage of x before, whose products may still run
      for (int chunk = 0; chunk < chunks(); ++chunk) {
        const bool first = chunk % of_.x_chunks == 0;
        const bool starts = unit == 0 && chunk == 0;
        const bool opens = chunk % of_.w_chunks == of_.w_chunks - 2 && w_step < w_steps;
        if (first && !starts) {
          while (!takes_x(block, x_turn, x_step)) co_await Turn();
        }
        if (starts || opens) {
          while (!w(block, warp, opened.slot).arrived.passes(opened.phase)) co_await Turn();
          EXPECT_EQ(w(block, warp, opened.slot).step, w_step++);
          ++w(block, warp, opened.slot).readers;
          opened.next(of_.w_slots);
        }
        if (starts) {
          while (!takes_x(block, x_turn, x_step)) co_await Turn();
        }
        if (first) {
          co_await Turn();
          if (running >= 0) release(block, running);
          running = x_turn.slot;
          x_turn.next(of_.x_slots);
          ++x_step;
        }
        co_await Turn();
        if ((chunk + 1) % of_.w_chunks == 0) {
          --w(block, warp, w_turn.slot).readers;
          w(block, warp, w_turn.slot).read.arrive();
          w_turn.next(of_.w_slots);
        }
      }
      release(block, running);
    }
    EXPECT_EQ(w_step, w_steps);
  }

  // Whether stage `step` of x has arrived, which is then read.
  bool takes_x(int block, const RingTurn& turn, int step) {
    if (!x(block, turn.slot).full.passes(turn.phase)) return false;
    for (const auto& part : x(block, turn.slot).parts) EXPECT_EQ(part, step);
    ++x(block, turn.slot).readers;
    return true;
  }

  Rng rng_;
  const TilesCase of_;
  std::vector<WStage> w_;
  std::vector<XStage> x_;
  std::vector<Copy> copies_;
  std::vector<Actor> actors_;
};

TEST(BlocksTilesProtocol, NobodyWaitsForEverAndNoStageIsOverwritten) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int steps = 1 + static_cast<int>(seed % 3);
    for (const int sharers : {1, 2}) {
      for (const int x_chunks : {kTilesXChunks<16>, kTilesXChunks<32>}) {
        ASSERT_TRUE(TilesCluster(seed, {.sharers = sharers,
                                        .units = 3,
                                        .steps = steps,
                                        .w_chunks = seed % 2 == 0 ? 4 : 8,
                                        .x_chunks = x_chunks,
                                        .w_slots = 2 + static_cast<int>(seed % 3),
                                        .x_slots = 4 + static_cast<int>(seed % 5)})
                        .run());
      }
    }
  }
}

}  // namespace
}  // namespace headrace::blocks_tiles_protocol_test
