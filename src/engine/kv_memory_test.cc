// The three managers of KV memory under the same lives: sequences that grow, fork, copy on write
// and leave, against what each token of each sequence must be. Bytes stand for keys and values.
#include "engine/kv_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/rng.h"
#include "kv/block_pool.h"
#include "kv/kv_demand.h"
#include "kv/sequence_blocks.h"
#include "tensor/physical_pages.h"

namespace headrace::kv_memory_test {
namespace {

constexpr int32_t kBlockTokens = 4, kSlots = 6, kTokensMax = 40;
constexpr int32_t kPagesPerSequence = kTokensMax / kBlockTokens;
constexpr int64_t kPageBytes = 4096;

class KvMemories : public ::testing::TestWithParam<std::string> {
 protected:
  KvMemories() {
    const KvMemoryShape shape{.page_bytes = kPageBytes,
                              .page_count = kSlots * kPagesPerSequence * 2 + 16,
                              .slot_count = kSlots,
                              .group_count = 2,
                              .pages_per_sequence = kPagesPerSequence};
    kind_ = value_named(kKvMemoryKinds, GetParam()).value();
    memory_ = KvMemory::create(kind_, *device_, shape).value();
    pool_ = std::make_unique<BlockPool>(shape.page_count - 1);
  }

  struct Running {
    explicit Running(std::span<const KvGroupSpec> groups) : blocks(groups) {}
    SequenceBlocks blocks;
    SequenceId id;
    SlotId slot;
    std::vector<TokenId> tokens;
    std::vector<std::vector<int32_t>> tables{2};
  };

  // Where a token's mark is, as a kernel finds it.
  TokenId& cell(const Running& one, size_t group, int32_t position) {
    const int32_t entry = one.tables[group].at(static_cast<size_t>(position / kBlockTokens));
    return reinterpret_cast<TokenId*>(memory_->base() +
                                      entry * kPageBytes)[position % kBlockTokens];
  }
  static void take(Running& one, const std::vector<GroupBlocks>& groups) {
    for (const GroupBlocks& group : groups) {
      std::vector<int32_t>& table = one.tables[static_cast<size_t>(group.group)];
      const size_t end = static_cast<size_t>(group.first_index) + group.blocks.size();
      if (table.size() < end) table.resize(end, -1);
      for (size_t i = 0; i < group.blocks.size(); ++i) {
        table[static_cast<size_t>(group.first_index) + i] = group.blocks[i].value;
      }
    }
  }
  void write(Running& one, int32_t first) {
    for (int32_t p = first; p < static_cast<int32_t>(one.tokens.size()); ++p) {
      for (size_t group = 0; group < 2; ++group) {
        cell(one, group, p) = one.tokens[static_cast<size_t>(p)] + static_cast<TokenId>(group);
      }
    }
  }
  void verify(const Running& one) {
    for (int32_t p = 0; p < static_cast<int32_t>(one.tokens.size()); ++p) {
      for (size_t group = 0; group < 2; ++group) {
        ASSERT_EQ(cell(one, group, p),
                  one.tokens[static_cast<size_t>(p)] + static_cast<TokenId>(group))
            << "position " << p;
      }
    }
  }
  int32_t reserve() const { return kind_ == KvMemoryKind::kContiguous ? kTokensMax : 0; }

  // A step in which `one` computes `count` tokens; then its followers share what it has.
  void compute(Running& one, bool joins, int32_t count, std::vector<Running>& followers) {
    const auto first = static_cast<int32_t>(one.tokens.size());
    for (int32_t i = 0; i < count; ++i)
      one.tokens.push_back(static_cast<TokenId>(rng_.below(1 << 30)));
    StepPlan plan{.step = ++step_};
    if (joins) plan.admitted.push_back({.sequence = one.id, .slot = one.slot});
    Work work{.sequence = one.id, .slot = one.slot, .first = first, .count = count};
    one.blocks.grow(*pool_, first, count, reserve(), Ticket(step_), work.new_blocks, plan.copies);
    plan.work.push_back(std::move(work));
    for (Running& follower : followers) {
      follower.blocks = one.blocks.fork(*pool_, first + count);
      follower.tokens = one.tokens;
      plan.admitted.push_back(
          {.sequence = follower.id, .slot = follower.slot, .blocks = follower.blocks.table()});
    }
    const StepPlan& mapped = **memory_->map(plan, *stream_);
    memory_->copy_pages(*stream_, plan.copies);
    take(one, mapped.work[0].new_blocks);
    for (size_t i = 0; i < followers.size(); ++i) {
      take(followers[i], mapped.admitted[i + (joins ? 1 : 0)].blocks);
    }
    write(one, first);
    pool_->advance(Ticket(step_));
    copies_ += plan.copies.size();
  }

  Rng rng_{7};
  const std::vector<KvGroupSpec> groups_{{.block_tokens = kBlockTokens},
                                         {.block_tokens = kBlockTokens}};
  std::unique_ptr<Device> device_ = create_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->create_stream();
  KvMemoryKind kind_{};
  std::unique_ptr<KvMemory> memory_;
  std::unique_ptr<BlockPool> pool_;
  uint64_t step_ = 0, next_sequence_ = 0;
  size_t copies_ = 0;
};

TEST_P(KvMemories, SequencesKeepWhatTheyWrote) {
  std::vector<Running> running;
  std::vector<SlotId> slots;
  for (int32_t slot = 0; slot < kSlots; ++slot) slots.push_back(SlotId(slot));
  const auto make = [&] {
    Running one(groups_);
    one.id = SequenceId(++next_sequence_);
    one.slot = slots.back();
    slots.pop_back();
    return one;
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<Running> followers;
    const uint64_t choice = rng_.below(4);
    if (choice == 0 && !slots.empty()) {
      Running one = make();
      while (!slots.empty() && rng_.below(2) == 0) followers.push_back(make());
      compute(one, true, static_cast<int32_t>(rng_.between(1, 12)), followers);
      running.push_back(std::move(one));
      for (Running& follower : followers) running.push_back(std::move(follower));
    } else if (choice == 1 && !running.empty()) {
      const size_t at = rng_.below(running.size());
      running[at].blocks.release_all(*pool_, Ticket(step_));
      slots.push_back(running[at].slot);
      running.erase(running.begin() + static_cast<ptrdiff_t>(at));
    } else if (!running.empty()) {
      Running& one = running[rng_.below(running.size())];
      const auto room = kTokensMax - static_cast<int32_t>(one.tokens.size());
      if (room > 0) {
        compute(one, false, static_cast<int32_t>(rng_.between(1, std::min(room, 5))), followers);
      }
    }
    if (round % 16 == 0) {
      // A step without work: what waits for the step before is done.
      (void)memory_->map({.step = ++step_}, *stream_);
      pool_->advance(Ticket(step_));
      for (const Running& one : running) verify(one);
    }
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(copies_, 100u);
  const KvMemoryStats stats = memory_->stats();
  EXPECT_EQ(stats.mapped > 0, kind_ == KvMemoryKind::kVirtual);
  EXPECT_EQ(stats.copied > 0, kind_ == KvMemoryKind::kContiguous);
  std::printf("%s: %ld KiB, %lu pages mapped in %.1f us each, %lu copied\n", GetParam().c_str(),
              stats.bytes >> 10, stats.mapped,
              stats.mapped == 0 ? 0 : stats.map_seconds * 1e6 / static_cast<double>(stats.mapped),
              stats.copied);
}

// To kernels, the tokens of one sequence follow one another.
TEST_P(KvMemories, RangesAreContiguous) {
  if (kind_ == KvMemoryKind::kPaged) return;
  std::vector<Running> none;
  Running a(groups_), b(groups_);
  a.id = SequenceId(1), b.id = SequenceId(2), a.slot = SlotId(0), b.slot = SlotId(3);
  compute(a, true, 3, none);
  compute(b, true, 9, none);
  compute(a, false, 20, none);
  for (const Running* one : {&a, &b}) {
    for (const std::vector<int32_t>& table : one->tables) {
      for (size_t i = 1; i < table.size(); ++i) EXPECT_EQ(table[i], table[i - 1] + 1);
    }
  }
}

// The system's pages that have memory behind them.
int64_t resident_bytes(std::byte* begin, int64_t bytes) {
  constexpr int64_t kSystemPage = 4096;
  std::vector<unsigned char> there(static_cast<size_t>(bytes / kSystemPage));
  EXPECT_EQ(::mincore(begin, static_cast<size_t>(bytes), there.data()), 0);
  return kSystemPage * std::count_if(there.begin(), there.end(),
                                     [](unsigned char page) { return (page & 1) != 0; });
}

TEST_P(KvMemories, PopulateTakesItsMemoryAtOnce) {
  const auto memory = KvMemory::create(kind_, *device_,
                                       {.page_bytes = 1 << 20,
                                        .page_count = 24,
                                        .slot_count = 6,
                                        .group_count = 1,
                                        .pages_per_sequence = 4})
                          .value();
  std::byte* const begin = memory->pool() != nullptr ? memory->pool() : memory->base();
  const int64_t bytes = memory->stats().bytes;
  EXPECT_LT(resident_bytes(begin, bytes), bytes);
  memory->populate(device_->pool());
  EXPECT_EQ(resident_bytes(begin, bytes), bytes);
}

INSTANTIATE_TEST_SUITE_P(Kinds, KvMemories, ::testing::ValuesIn(names_of(kKvMemoryKinds)),
                         [](const auto& param) { return param.param; });

TEST(PhysicalPages, OnePageAtTwoAddresses) {
  const auto device = create_cpu_device(1);
  const auto pages = PhysicalPages::create(*device, 4096, 4).value();
  std::byte* range = pages->reserve(4 * 4096).value();
  ASSERT_TRUE(pages->map(range, 2).ok());
  ASSERT_TRUE(pages->map(range + 3 * 4096, 2).ok());
  range[7] = std::byte{42};
  EXPECT_EQ(range[3 * 4096 + 7], std::byte{42});
  EXPECT_EQ(pages->linear()[2 * 4096 + 7], std::byte{42});
  pages->linear()[1 * 4096] = std::byte{5};
  ASSERT_TRUE(pages->map(range, 1).ok());
  EXPECT_EQ(range[0], std::byte{5});
  EXPECT_EQ(range[3 * 4096 + 7], std::byte{42});
  const auto wrong = PhysicalPages::create(*device, 1000, 4);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("4096"), std::string::npos);
}

}  // namespace
}  // namespace headrace::kv_memory_test
