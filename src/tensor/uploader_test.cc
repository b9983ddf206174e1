#include "tensor/uploader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace headrace::uploader_test {
namespace {

// What byte `i` of row `row` is.
uint8_t expected(int64_t row, int64_t i) { return static_cast<uint8_t>(row * 31 + i * 7 + 1); }

Uploader::MakeRows make_rows(int64_t row_bytes) {
  return [row_bytes](int64_t first, int64_t last, std::byte* out) {
    for (int64_t row = first; row < last; ++row) {
      for (int64_t i = 0; i < row_bytes; ++i) *out++ = static_cast<std::byte>(expected(row, i));
    }
  };
}

void expect_uploads(Device& device, int64_t rows, int64_t row_bytes) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << row_bytes);
  Buffer memory = std::move(device.allocate(rows * row_bytes).value());
  Uploader uploader(device, 3);
  uploader.start(memory.data(), rows, row_bytes, make_rows(row_bytes));
  ASSERT_TRUE(uploader.finish().ok());
  std::vector<std::byte> back(static_cast<size_t>(memory.size()));
  const auto stream = device.create_stream();
  stream->copy_out(back.data(), memory.data(), memory.size());
  ASSERT_TRUE(stream->synchronize().ok());
  for (int64_t i = 0; i < memory.size(); ++i) {
    ASSERT_EQ(static_cast<uint8_t>(back[static_cast<size_t>(i)]),
              expected(i / row_bytes, i % row_bytes))
        << "byte " << i;
  }
}

void expect_all_sizes(Device& device) {
  expect_uploads(device, 1, 1);
  expect_uploads(device, 1000, 6);
  expect_uploads(device, 40000, 2050);  // forty chunks: every thread's come round
  expect_uploads(device, 3, 20 << 20);  // rows longer than a chunk
  expect_uploads(device, 17, 4096);
}

// What make_rows holds is let go when its rows are made, and at the latest by finish().
TEST(Uploader, LetsGoOfWhatItHeld) {
  const auto device = create_cpu_device(2);
  Buffer memory = std::move(device->allocate(64 << 20).value());
  Uploader uploader(*device, 2);
  std::vector<std::weak_ptr<int>> held;
  for (int64_t i = 0; i < 8; ++i) {
    const auto hold = std::make_shared<int>(0);
    held.push_back(hold);
    uploader.start(memory.data() + i * (8 << 20), 1024, 8192,
                   [hold](int64_t first, int64_t last, std::byte* out) {
                     std::memset(out, 1, static_cast<size_t>((last - first) * 8192));
                   });
  }
  ASSERT_TRUE(uploader.finish().ok());
  for (const auto& hold : held) EXPECT_TRUE(hold.expired());
}

TEST(Uploader, EndsWithWorkLeft) {
  const auto device = create_cpu_device(2);
  Buffer memory = std::move(device->allocate(64 << 20).value());
  Uploader uploader(*device, 2);
  for (int i = 0; i < 100; ++i) uploader.start(memory.data(), 8192, 8192, make_rows(8192));
}

TEST(Uploader, WritesEveryRowOnTheCpu) { expect_all_sizes(*create_cpu_device(2)); }

TEST(Uploader, WritesEveryRowOnTheGpu) {
  auto device = create_cuda_device(0);
  if (!device.ok()) GTEST_SKIP() << "not run: " << device.status().message();
  expect_all_sizes(**device);
}

}  // namespace
}  // namespace headrace::uploader_test
