// Ranks on the GPUs of this machine, or where there is one, two ranks on it: what each gets of sums
// and gathers is what the host adds up and joins.
#include "ops/ranks/peer_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"

namespace headrace::peer_ranks_test {
namespace {

TEST(PeerRanks, OfNullDevicesKnowTheirPlaces) {
  const auto first = create_null_device({}), second = create_null_device({});
  Device* const devices[] = {first.get(), second.get()};
  const auto group = PeerRanks::create(devices);
  ASSERT_TRUE(group.ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ((*group)->rank(rank).rank(), rank);
    EXPECT_EQ((*group)->rank(rank).size(), 2);
    EXPECT_TRUE((*group)->rank(rank).status().ok());
  }
}

// All GPUs of the machine; one alone is two ranks. Then what makes the driver wait for the whole
// GPU (allocations, the loading of kernels) must not stand between two ranks' halves of a
// collective.
class PeerRanksCuda : public testing::Test {
 protected:
  static constexpr int64_t kBytes = 200 * 128256 * 4;

  static void SetUpTestSuite() { ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0); }
  void SetUp() override {
    if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
    for (int gpu = 0; gpu < kPeerRanksMax; ++gpu) {
      auto device = create_cuda_device(gpu, 1);
      if (!device.ok()) break;
      devices_.push_back(std::move(device).value());
    }
    ASSERT_FALSE(devices_.empty());
    if (devices_.size() == 1) devices_.push_back(create_cuda_device(0, 1).value());
    std::vector<Device*> all;
    for (const auto& device : devices_) all.push_back(device.get());
    auto group = PeerRanks::create(all);
    ASSERT_TRUE(group.ok()) << group.status().message();
    group_ = std::move(group).value();
    for (const auto& device : devices_) {
      streams_.push_back(device->create_stream());
      data_.push_back(device->allocate(kBytes).value());
      inputs_.push_back(device->allocate(kBytes).value());
    }
  }

  int size() const { return static_cast<int>(devices_.size()); }

  // What the rank's data is before a collective.
  void bring(int rank, const std::vector<std::byte>& bytes) {
    const auto at = static_cast<size_t>(rank);
    ASSERT_LE(std::ssize(bytes), kBytes);
    streams_[at]->copy_in(inputs_[at].data(), bytes.data(), std::ssize(bytes));
    ASSERT_TRUE(streams_[at]->synchronize().ok());
  }
  std::vector<std::byte> result(int rank, size_t bytes) {
    const auto at = static_cast<size_t>(rank);
    std::vector<std::byte> result(bytes);
    streams_[at]->copy_out(result.data(), data_[at].data(), std::ssize(result));
    EXPECT_TRUE(streams_[at]->synchronize().ok());
    return result;
  }

  // work(rank, its stream, its data) on a thread of each rank, `times` times, on what it brought.
  using Work = std::function<void(int, Stream&, std::byte*)>;
  void on_ranks(int64_t bytes, int times, const Work& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<size_t>(rank);
        devices_[at]->make_current();
        for (int turn = 0; turn < times; ++turn) {
          streams_[at]->copy(data_[at].data(), inputs_[at].data(), bytes);
          work(rank, *streams_[at], data_[at].data());
        }
        EXPECT_TRUE(streams_[at]->synchronize().ok());
        EXPECT_TRUE(group_->rank(rank).status().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Buffer> data_, inputs_;
  std::unique_ptr<PeerRanks> group_;
};

uint16_t bits_of(DType dtype, float value) {
  return dtype == DType::kF16 ? float_to_half(value) : float_to_bfloat16(value);
}
float value_of(DType dtype, uint16_t bits) {
  return dtype == DType::kF16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

// What a rank brings to a sum: numbers of its own, and pairs of negative zeros.
std::vector<std::byte> addend(DType dtype, int64_t count, int rank, uint64_t seed) {
  Rng rng(seed * 31 + static_cast<uint64_t>(rank));
  std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_info(dtype).block_bytes));
  for (int64_t i = 0; i < count; ++i) {
    const float value = i % 7 < 2 ? -0.0f : static_cast<float>(rng.uniform() * 8 - 4);
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const uint16_t bits = bits_of(dtype, value);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

float element(DType dtype, const std::vector<std::byte>& bytes, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + 2 * i, 2);
  return value_of(dtype, bits);
}

// In the order of the ranks, rounded once.
float sum_of(DType dtype, const std::vector<std::vector<std::byte>>& addends, int64_t i) {
  float sum = element(dtype, addends.front(), i);
  for (size_t r = 1; r < addends.size(); ++r) sum += element(dtype, addends[r], i);
  return dtype == DType::kF32 ? sum : value_of(dtype, bits_of(dtype, sum));
}

TEST_F(PeerRanksCuda, SumsAreThoseOfTheHostOnEveryRank) {
  struct Case {
    DType dtype;
    int64_t rows, columns;
  };
  std::vector<Case> cases;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t rows : {1, 3, 8, 32, 33, 200}) cases.push_back({dtype, rows, 4096});
    cases.push_back({dtype, 5, 72});
    cases.push_back({dtype, 2600, 4096});  // several launches
  }
  for (size_t c = 0; c < cases.size(); ++c) {
    const auto [dtype, rows, columns] = cases[c];
    SCOPED_TRACE(c);
    const int64_t count = rows * columns;
    std::vector<std::vector<std::byte>> addends, sums;
    for (int r = 0; r < size(); ++r) {
      addends.push_back(addend(dtype, count, r, c));
      bring(r, addends.back());
    }
    const size_t bytes = addends.front().size();
    on_ranks(
        static_cast<int64_t>(bytes), /*times=*/5,
        [&, type = dtype, shape = Shape{rows, columns}](int rank, Stream& stream, std::byte* data) {
          group_->rank(rank).all_reduce_sum(stream, TensorView(data, type, shape));
        });
    for (int r = 0; r < size(); ++r) sums.push_back(result(r, bytes));
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      wrong += element(dtype, sums.front(), i) == sum_of(dtype, addends, i) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
    for (int r = 1; r < size(); ++r) EXPECT_EQ(sums[static_cast<size_t>(r)], sums.front());
  }
}

TEST_F(PeerRanksCuda, GatheredColumnsAreEveryRanks) {
  struct Case {
    DType dtype;
    int64_t rows, columns, unit, stride_bytes;
  };
  const std::vector<Case> cases = {{DType::kF32, 1, 128256, 16, 128256 * 4},
                                   {DType::kF32, 200, 128256, 16, 128256 * 4},
                                   {DType::kF32, 7, 49155, 1, 49216 * 4},
                                   {DType::kBF16, 9, 4096, 64, 4096 * 2},
                                   {DType::kBF16, 9, 101, 1, 128 * 2}};
  for (size_t c = 0; c < cases.size(); ++c) {
    const auto [dtype, rows, columns, unit, stride] = cases[c];
    SCOPED_TRACE(c);
    std::vector<int64_t> starts;
    for (int r = 0; r <= size(); ++r) {
      starts.push_back(r == size() ? columns : columns / unit * r / size() * unit);
    }
    const int64_t size_of = dtype_info(dtype).block_bytes;
    const std::vector<std::byte> whole = addend(dtype, rows * columns, 0, c);
    for (int r = 0; r < size(); ++r) {
      const auto at = static_cast<size_t>(r);
      std::vector<std::byte> own(static_cast<size_t>(rows * stride));
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(own.data() + row * stride + starts[at] * size_of,
                    whole.data() + (row * columns + starts[at]) * size_of,
                    static_cast<size_t>((starts[at + 1] - starts[at]) * size_of));
      }
      bring(r, own);
    }
    on_ranks(rows * stride, /*times=*/3,
             [&, type = dtype, shape = Shape{rows, columns}, row_bytes = stride](
                 int rank, Stream& stream, std::byte* data) {
               group_->rank(rank).all_gather(stream, TensorView(data, type, shape, row_bytes),
                                             starts);
             });
    std::vector<std::vector<std::byte>> results;
    for (int r = 0; r < size(); ++r) {
      results.push_back(result(r, static_cast<size_t>(rows * stride)));
    }
    for (const std::vector<std::byte>& result : results) {
      int64_t wrong = 0;
      for (int64_t row = 0; row < rows; ++row) {
        wrong += std::memcmp(result.data() + row * stride, whole.data() + row * columns * size_of,
                             static_cast<size_t>(columns * size_of)) == 0
                     ? 0
                     : 1;
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

// One rank replays what it has recorded while the others launch one by one, in sizes that change.
TEST_F(PeerRanksCuda, ARecordedRankMeetsOthersThatAreNot) {
  const std::vector<int64_t> rows = {1, 40, 8, 1, 70, 16, 300};
  constexpr int64_t kColumns = 4096;
  std::vector<std::byte> ones(static_cast<size_t>(300 * kColumns * 2));
  const uint16_t one = float_to_bfloat16(1.0f);
  for (size_t i = 0; i < ones.size(); i += 2) std::memcpy(&ones[i], &one, 2);
  for (int r = 0; r < size(); ++r) bring(r, ones);
  const auto sums = [&](int rank, Stream& stream, std::byte* data) {
    for (const int64_t count : rows) {
      group_->rank(rank).all_reduce_sum(stream,
                                        TensorView(data, DType::kBF16, Shape{count, kColumns}));
    }
  };
  devices_.front()->make_current();
  ASSERT_TRUE(streams_.front()->begin_capture().ok());
  sums(0, *streams_.front(), data_.front().data());
  const auto graph = streams_.front()->end_capture().value();
  on_ranks(std::ssize(ones), /*times=*/200, [&](int rank, Stream& stream, std::byte* data) {
    rank == 0 ? stream.launch(*graph) : sums(rank, stream, data);
  });
  for (int r = 0; r < size(); ++r) {
    const std::vector<std::byte> all = result(r, ones.size());
    EXPECT_EQ(element(DType::kBF16, all, 0), std::pow(size(), rows.size()));
    EXPECT_EQ(element(DType::kBF16, all, 299 * kColumns), size());
  }
}

}  // namespace
}  // namespace headrace::peer_ranks_test
