#include "weights/packed_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/rng.h"

namespace headrace::packed_cache_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> random_bytes(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256));
  return bytes;
}

class PackedCacheTest : public testing::Test {
 protected:
  PackedCacheTest()
      : folder_(fs::temp_directory_path() /
                ("packed_cache_" + std::to_string(::getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
  }
  ~PackedCacheTest() override { fs::remove_all(folder_); }

  std::unique_ptr<PackedCache> open(std::string_view key = "key", std::string_view model = "m") {
    return PackedCache::open(folder_.string(), model, key, pool_);
  }
  // A file with both pieces; its path.
  std::string write(std::string_view key = "key", std::string_view model = "m",
                    int64_t folder_bytes_max = int64_t{1} << 30) {
    const auto cache = open(key, model);
    cache->add("small", small_);
    cache->add("large", large_);
    const Status status = cache->write(folder_bytes_max);
    EXPECT_TRUE(status.ok()) << status.message();
    return cache->path();
  }
  static void flip_byte(const std::string& path, std::streamoff at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  ThreadPool pool_{2};
  const fs::path folder_;
  const std::vector<std::byte> small_ = random_bytes(192, 1);
  // Over a write of 8 MiB, and no whole number of checksums' 2 MiB.
  const std::vector<std::byte> large_ = random_bytes((9 << 20) + 64, 2);
};

TEST_F(PackedCacheTest, GivesBackWhatWasWritten) {
  EXPECT_FALSE(open()->hit());
  write();
  const auto cache = open();
  ASSERT_TRUE(cache->hit());
  EXPECT_EQ(cache->bytes(), static_cast<int64_t>(small_.size() + large_.size()));
  const auto small = cache->find("small"), large = cache->find("large");
  ASSERT_TRUE(small && large);
  EXPECT_TRUE(std::equal(small->begin(), small->end(), small_.begin(), small_.end()));
  EXPECT_TRUE(std::equal(large->begin(), large->end(), large_.begin(), large_.end()));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large->data()) % 64, 0u);
  EXPECT_FALSE(cache->find("other"));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().extension(), ".packed") << entry.path();  // nothing half-written is left
  }
}

// As many matrices as a large mixture of experts has: their names take more than one huge page.
TEST_F(PackedCacheTest, HoldsAllExpertsOfALargeMixture) {
  constexpr int kMatrices = 70'000;
  const auto name = [](int i) { return "blk.0.ffn_gate_exps.weight." + std::to_string(i); };
  const auto written = open();
  for (int i = 0; i < kMatrices; ++i) written->add(name(i), std::span(small_).first(64));
  written->add("last", small_);
  ASSERT_TRUE(written->write(int64_t{1} << 30).ok());
  const auto cache = open();
  ASSERT_TRUE(cache->hit());
  for (const int i : {0, 1, kMatrices - 1}) ASSERT_TRUE(cache->find(name(i))) << i;
  const auto last = cache->find("last");
  ASSERT_TRUE(last);
  EXPECT_TRUE(std::equal(last->begin(), last->end(), small_.begin(), small_.end()));
}

TEST_F(PackedCacheTest, AnotherKeyOrModelIsAnotherFile) {
  write();
  EXPECT_FALSE(open("another key")->hit());
  EXPECT_FALSE(open("key", "another")->hit());
  EXPECT_TRUE(open()->hit());
}

TEST_F(PackedCacheTest, ADamagedFileIsNone) {
  const std::string path = write();
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  const std::streamoff payload = 2 << 20;
  // Magic, count, size, sum, a piece's name, its offset, checksums, and the payload's both ends.
  for (const std::streamoff at :
       {std::streamoff{0}, std::streamoff{8}, std::streamoff{16}, std::streamoff{24},
        std::streamoff{32}, std::streamoff{32 + 48}, std::streamoff{32 + 128}, payload, size - 1}) {
    flip_byte(path, at);
    EXPECT_FALSE(open()->hit()) << at;
    flip_byte(path, at);
    EXPECT_TRUE(open()->hit()) << at;
  }
  fs::resize_file(path, static_cast<uintmax_t>(size - 64));
  EXPECT_FALSE(open()->hit());
  fs::resize_file(path, 100);
  EXPECT_FALSE(open()->hit());
  fs::resize_file(path, 0);
  EXPECT_FALSE(open()->hit());
  write();  // and is replaced
  EXPECT_TRUE(open()->hit());
}

// A whole file of an older version, with checksums that are right: it would be misread.
TEST_F(PackedCacheTest, AFileOfAnOlderVersionIsNone) {
  const std::string path = write();
  const auto write_version = [&](const std::string& version) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string magic(8, ' ');
    file.read(magic.data(), 8);
    EXPECT_EQ(magic.substr(0, 6), "HRPACK");
    file.seekp(6);
    file.write(version.data(), 2);
    return magic.substr(6);
  };
  ASSERT_EQ(write_version("01"), "02");
  EXPECT_FALSE(open()->hit());
  EXPECT_FALSE(open()->find("small"));
  write_version("02");
  EXPECT_TRUE(open()->hit());
  write_version("01");
  write();  // and is replaced
  EXPECT_TRUE(open()->hit());
}

TEST_F(PackedCacheTest, TheLongestUnusedGo) {
  const std::string first = write("1"), second = write("2");
  const auto back = [](const std::string& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  back(first, 2);
  back(second, 3);
  const std::string under_way = first + ".4242", left_over = first + ".4243";
  for (const std::string& path : {under_way, left_over}) std::ofstream(path) << "half";
  back(left_over, 2);
  EXPECT_TRUE(open("2")->hit());  // used: now the first is the oldest
  const auto two_files = static_cast<int64_t>(2 * fs::file_size(second));
  const std::string third = write("3", "m", two_files);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(second));
  EXPECT_TRUE(fs::exists(third));
  EXPECT_TRUE(fs::exists(under_way));
  EXPECT_FALSE(fs::exists(left_over));  // by a process that was ended while it wrote
}

TEST_F(PackedCacheTest, AFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder_.string()) << "a file";
  const auto cache = open();
  cache->add("small", small_);
  const Status status = cache->write(1 << 20);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(folder_.string()), std::string::npos);
}

}  // namespace
}  // namespace headrace::packed_cache_test
