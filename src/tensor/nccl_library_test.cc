#include "tensor/nccl_library.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tensor/half.h"

namespace headrace::nccl_library_test {
namespace {

TEST(NcclLibrary, SaysWhyThereIsNone) {
  const auto library = NcclLibrary::open();
  if (library.ok()) GTEST_SKIP() << "not run: NCCL is there";
  if (built_with_cuda()) {
    EXPECT_EQ(library.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(library.status().message().find("libnccl.so.2"), std::string::npos);
  } else {
    EXPECT_EQ(library.status().code(), StatusCode::kUnsupported);
  }
}

TEST(SingleRank, SumsNothing) {
  SingleRank rank;
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream();
  float value = 3;
  rank.all_reduce_sum(*stream, TensorView(reinterpret_cast<std::byte*>(&value), DType::kF32, {1}));
  EXPECT_EQ(value, 3);
  EXPECT_EQ(rank.size(), 1);
}

// Every GPU of the machine is a rank; one alone keeps what it has.
class NcclCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_device_present()) GTEST_SKIP() << "not run: no GPU";
    const auto library = NcclLibrary::open();
    if (!library.ok()) GTEST_SKIP() << "not run: " << library.status().message();
    library_ = *library;
    for (int index = 0;; ++index) {
      auto device = create_cuda_device(index, 1);
      if (!device.ok()) break;
      devices_.push_back(std::move(*device));
    }
  }

  int size() const { return static_cast<int>(devices_.size()); }

  // Element i of rank r is (r + 1) (i % 3): small whole numbers, exact in BF16 for up to 8 ranks.
  static float input(int rank, int64_t i) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 3));
  }

  // What rank `rank` holds after two sums, the second replayed from a recording.
  Result<std::vector<float>> sum(const NcclGroupId& group, int rank, int64_t count, DType dtype) {
    Device& device = *devices_[static_cast<size_t>(rank)];
    const auto stream = device.create_stream();
    HR_ASSIGN_OR_RETURN(const auto nccl, library_->join(group, rank, size(), *stream));
    EXPECT_EQ(nccl->rank(), rank);
    EXPECT_EQ(nccl->size(), size());
    const auto bytes = static_cast<size_t>(*row_bytes(dtype, count));
    std::vector<std::byte> host(bytes);
    for (int64_t i = 0; i < count; ++i) store(host.data(), dtype, i, input(rank, i));
    HR_ASSIGN_OR_RETURN(const Buffer memory, device.allocate(static_cast<int64_t>(bytes)));
    stream->copy_in(memory.data(), host.data(), static_cast<int64_t>(bytes));
    const TensorView view(memory.data(), dtype, Shape{count});
    nccl->all_reduce_sum(*stream, view);
    HR_RETURN_IF_ERROR(stream->synchronize());
    HR_RETURN_IF_ERROR(stream->begin_capture());
    nccl->all_reduce_sum(*stream, view);
    HR_ASSIGN_OR_RETURN(const auto graph, stream->end_capture());
    stream->launch(*graph);
    stream->copy_out(host.data(), memory.data(), static_cast<int64_t>(bytes));
    HR_RETURN_IF_ERROR(stream->synchronize());
    HR_RETURN_IF_ERROR(nccl->status());
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(load(host.data(), dtype, i));
    return values;
  }

  static void store(std::byte* data, DType dtype, int64_t i, float value) {
    if (dtype == DType::kF32) {
      std::memcpy(data + 4 * i, &value, 4);
    } else {
      const uint16_t bits = dtype == DType::kBF16 ? float_to_bfloat16(value) : float_to_half(value);
      std::memcpy(data + 2 * i, &bits, 2);
    }
  }
  static float load(const std::byte* data, DType dtype, int64_t i) {
    float value = 0;
    uint16_t bits = 0;
    if (dtype == DType::kF32) {
      std::memcpy(&value, data + 4 * i, 4);
      return value;
    }
    std::memcpy(&bits, data + 2 * i, 2);
    return dtype == DType::kBF16 ? bfloat16_to_float(bits) : half_to_float(bits);
  }

  const NcclLibrary* library_ = nullptr;
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST_F(NcclCuda, EveryRankHoldsTheSum) {
  EXPECT_GE(library_->version(), 21000);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t count : {1, 7, 4096, 100003}) {
      const auto group = library_->new_group();
      ASSERT_TRUE(group.ok()) << group.status().message();
      std::vector<std::vector<float>> held(devices_.size());
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < size(); ++rank) {
        threads.emplace_back([&, rank] {
          const auto values = sum(*group, rank, count, dtype);
          ASSERT_TRUE(values.ok()) << values.status().message();
          held[static_cast<size_t>(rank)] = *values;
        });
      }
      threads.clear();  // joins them
      for (int rank = 0; rank < size(); ++rank) {
        ASSERT_EQ(held[static_cast<size_t>(rank)].size(), static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
          float once = 0;
          for (int other = 0; other < size(); ++other) once += input(other, i);
          // The second sum adds what all ranks hold alike.
          ASSERT_EQ(held[static_cast<size_t>(rank)][static_cast<size_t>(i)],
                    once * static_cast<float>(size()))
              << "rank " << rank << ", element " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::nccl_library_test
