#include "tensor/device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tensor/workspace.h"

namespace headrace::device_test {
namespace {

TEST(CpuDevice, BuffersHoldBytesAndMove) {
  const auto device = create_cpu_device(1);
  auto buffer = device->allocate(1 << 20);
  ASSERT_TRUE(buffer.ok());
  const auto stream = device->create_stream();
  stream->copy_in(buffer->data(), reinterpret_cast<const std::byte*>("abc"), 4);
  Buffer moved = std::move(*buffer);
  EXPECT_STREQ(reinterpret_cast<const char*>(moved.data()), "abc");
  EXPECT_TRUE(stream->record()->complete());
  EXPECT_TRUE(stream->synchronize().ok());
}

TEST(CpuDevice, AnImpossibleSizeIsAnErrorThatNamesIt) {
  const auto device = create_cpu_device(1);
  const Status status = device->allocate(int64_t{1} << 60).status();
  EXPECT_EQ(status.code(), StatusCode::kExhausted);
  EXPECT_NE(status.message().find("MiB"), std::string::npos);
}

TEST(Device, SaysAThingOnce) {
  const auto device = create_cpu_device(1);
  EXPECT_TRUE(device->first_time("a"));
  EXPECT_FALSE(device->first_time("a"));
  EXPECT_TRUE(device->first_time("b"));
  EXPECT_TRUE(create_cpu_device(1)->first_time("a"));  // another device's log
}

TEST(CudaDevice, SaysWhyItIsNotThere) {
  auto device = create_cuda_device(1000);
  ASSERT_FALSE(device.ok());
  EXPECT_FALSE(device.status().message().empty());
}

TEST(NullDevice, AStreamThatHasFailedSaysSoFromThenOn) {
  const auto device = create_null_device({});
  const auto stream = device->create_stream(), other = device->create_stream();
  EXPECT_TRUE(stream->status().ok() && stream->synchronize().ok());
  stream->fail(internal_error("the first"));
  stream->fail(internal_error("the second"));
  EXPECT_EQ(stream->status().message(), "the first");
  EXPECT_EQ(stream->synchronize().message(), "the first");
  EXPECT_TRUE(other->status().ok());
}

// It would lack what did not start.
TEST(NullDevice, ARecordingOfAStreamThatHasFailedIsNone) {
  const auto device = create_null_device({});
  const auto stream = device->create_stream();
  ASSERT_TRUE(stream->begin_capture().ok());
  stream->call([] {});
  stream->fail(internal_error("one has not started"));
  EXPECT_EQ(stream->end_capture().status().message(), "one has not started");
}

TEST(Workspace, AMarkGivesBackWhatWasTakenUnderIt) {
  const auto device = create_cpu_device(1);
  Workspace workspace(std::move(device->allocate(4096).value()));
  std::byte* first = nullptr;
  {
    Workspace::Mark mark(workspace);
    first = workspace.take(100);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_NE(workspace.take(100), first);
  }
  EXPECT_EQ(workspace.take(4000), first);
  EXPECT_DEATH(workspace.take(4096), "workspace too small");
}

}  // namespace
}  // namespace headrace::device_test
