#include "tensor/thread_ranks.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace headrace::thread_ranks_test {
namespace {

// Runs `work(communicator)` on a thread a rank.
void on_ranks(int count, const std::function<void(Communicator&)>& work) {
  const ThreadRanks ranks(count);
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r) threads.emplace_back([&, r] { work(ranks.rank(r)); });
  for (std::thread& thread : threads) thread.join();
}

struct Rows {
  Rows(int64_t rows, int64_t columns, float value)
      : values(static_cast<size_t>(rows * columns), value),
        view(reinterpret_cast<std::byte*>(values.data()), DType::kF32, Shape{rows, columns}) {}
  float& at(int64_t row, int64_t column) {
    return values[static_cast<size_t>(row * view.columns() + column)];
  }
  std::vector<float> values;
  TensorView view;
};

std::unique_ptr<Stream> host_stream() {
  static const std::unique_ptr<Device> device = create_cpu_device(1);
  return device->create_stream();
}

// (1e8 + 1) - 1e8 is 0 in f32, (1e8 - 1e8) + 1 is 1: the order shows.
TEST(ThreadRanks, SumsAreAddedInTheOrderOfRanks) {
  on_ranks(3, [](Communicator& group) {
    const auto stream = host_stream();
    const float addends[] = {1e8f, -1e8f, 1.0f};
    for (int round = 0; round < 100; ++round) {
      Rows rows(5, 7, addends[group.rank()]);
      group.all_reduce_sum(*stream, rows.view);
      for (const float value : rows.values) ASSERT_EQ(value, 1.0f);
    }
    const float others[] = {1e8f, 1.0f, -1e8f};
    Rows rows(1, 2, others[group.rank()]);  // fewer elements than ranks
    group.all_reduce_sum(*stream, rows.view);
    for (const float value : rows.values) EXPECT_EQ(value, 0.0f);
  });
}

TEST(ThreadRanks, GathersUnequalColumns) {
  const std::vector<int64_t> starts = {0, 5, 5, 6};  // one rank has none
  on_ranks(3, [&](Communicator& group) {
    const auto stream = host_stream();
    for (int round = 0; round < 100; ++round) {
      const auto r = static_cast<size_t>(group.rank());
      Rows all(4, 8, -1), first(4, 8, -1);
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t c = starts[r]; c < starts[r + 1]; ++c) {
          all.at(row, c) = first.at(row, c) = static_cast<float>(round + 100 * row + c);
        }
      }
      group.all_gather(*stream, all.view, starts);
      group.gather(*stream, first.view, starts);
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t c = 0; c < 8; ++c) {
          const float value = c < 6 ? static_cast<float>(round + 100 * row + c) : -1;
          ASSERT_EQ(all.at(row, c), value);
          const bool has = group.rank() == 0 || (c >= starts[r] && c < starts[r + 1]);
          ASSERT_EQ(first.at(row, c), has ? value : -1);
        }
      }
    }
  });
}

TEST(ThreadRanks, BlocksGoToTheirRanks) {
  on_ranks(4, [](Communicator& group) {
    const auto stream = host_stream();
    Rows from(8, 3, 0), to(8, 3, -1);
    for (int64_t row = 0; row < 8; ++row) {
      for (int64_t c = 0; c < 3; ++c) from.at(row, c) = static_cast<float>(10 * group.rank() + row);
    }
    group.all_to_all(*stream, from.view, to.view);
    for (int64_t row = 0; row < 8; ++row) {
      EXPECT_EQ(to.at(row, 0), static_cast<float>(10 * (row / 2) + 2 * group.rank() + row % 2));
    }
  });
}

TEST(ThreadRanks, SendsRoundARing) {
  on_ranks(3, [](Communicator& group) {
    const auto stream = host_stream();
    Rows token(2, 2, 0);
    const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    for (int lap = 0; lap < 50; ++lap) {
      if (group.rank() != 0) group.receive(*stream, token.view, before);
      token.at(1, 1) += 1;
      group.send(*stream, token.view, next);
      if (group.rank() == 0) group.receive(*stream, token.view, before);
    }
    if (group.rank() == 0) {
      EXPECT_EQ(token.at(1, 1), 150);
    }
  });
}

}  // namespace
}  // namespace headrace::thread_ranks_test
