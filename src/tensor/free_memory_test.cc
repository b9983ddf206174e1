#include "tensor/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace headrace::free_memory_test {
namespace {

namespace fs = std::filesystem;

class FreeMemory : public testing::Test {
 protected:
  FreeMemory() : root_(fs::path(testing::TempDir()) / "free_memory_test") { fs::remove_all(root_); }
  ~FreeMemory() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const fs::path at = root_ / path;
    fs::create_directories(at.parent_path());
    std::ofstream(at) << text << '\n';
  }
  std::optional<int64_t> read() const { return free_memory_bytes(root_.string()); }

 private:
  fs::path root_;
};

TEST_F(FreeMemory, OfThisMachine) {
  const auto bytes = free_memory_bytes();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_GT(*bytes, 1 << 20);
}

TEST_F(FreeMemory, WithoutGroupsWhatTheKernelSays) {
  EXPECT_EQ(read(), std::nullopt);
  write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable:   64 kB");
  EXPECT_EQ(read(), 64 << 10);
}

TEST_F(FreeMemory, TheTightestGroupCounts) {
  write("proc/meminfo", "MemAvailable: 1000000 kB");
  write("proc/self/cgroup", "0::/a/b");
  write("sys/fs/cgroup/a/b/memory.max", "max");
  write("sys/fs/cgroup/a/b/memory.current", "5000");
  write("sys/fs/cgroup/a/memory.max", "9000");
  write("sys/fs/cgroup/a/memory.current", "6000");
  write("sys/fs/cgroup/a/memory.stat", "anon 5500\ninactive_file 500\nactive_file 100");
  EXPECT_EQ(read(), 3500);
  write("sys/fs/cgroup/a/memory.current", "9900");
  EXPECT_EQ(read(), 0);
}

TEST_F(FreeMemory, TheFirstVersionOfGroups) {
  write("proc/meminfo", "MemAvailable: 1000000 kB");
  write("proc/self/cgroup", "4:memory:/docker/1\n1:cpu:/docker/1");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "70000");
  write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "50000");
  write("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "20000");
  write("sys/fs/cgroup/memory/docker/1/memory.stat", "inactive_file 1\ntotal_inactive_file 2000");
  EXPECT_EQ(read(), 32000);
}

}  // namespace
}  // namespace headrace::free_memory_test
