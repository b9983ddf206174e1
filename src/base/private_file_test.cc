#include "base/private_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace headrace::private_file_test {
namespace {

namespace fs = std::filesystem;

class PrivateFile : public ::testing::Test {
 protected:
  PrivateFile() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(victim_) << "mine";
    old_mask_ = ::umask(0);  // the mode must not depend on it
  }
  ~PrivateFile() override {
    ::umask(old_mask_);
    fs::remove_all(folder_);
  }
  static mode_t mode_of(int file) {
    struct stat info {};
    return ::fstat(file, &info) == 0 ? info.st_mode & 07777 : 0;
  }
  const std::string folder_ = testing::TempDir() + "private_file_test/";
  const std::string victim_ = folder_ + "victim", path_ = folder_ + "file";

 private:
  mode_t old_mask_;
};

TEST_F(PrivateFile, IsTheOwnersFromTheFirstMoment) {
  const int created = create_private_file(path_);
  ASSERT_GE(created, 0);
  EXPECT_EQ(mode_of(created), 0600u);
  ::close(created);
  const int opened = open_private_file(folder_ + "other", O_APPEND);
  ASSERT_GE(opened, 0);
  EXPECT_EQ(mode_of(opened), 0600u);
  ::close(opened);
}

TEST_F(PrivateFile, ALinkThatWaitsIsNotFollowed) {
  fs::create_symlink(victim_, path_);
  EXPECT_EQ(open_private_file(path_, O_APPEND), -1);
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(open_own_file(path_), -1);
  EXPECT_EQ(errno, ELOOP);
  const int created = create_private_file(path_);
  ASSERT_GE(created, 0);
  EXPECT_EQ(::write(created, "prompt", 6), 6);
  ::close(created);
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(fs::file_size(victim_), 4u);
}

TEST_F(PrivateFile, AFileThatOthersMayWriteIsNotOurs) {
  fs::permissions(victim_, fs::perms(0644));
  const int own = open_own_file(victim_);
  EXPECT_GE(own, 0);
  ::close(own);
  for (const int mode : {0664, 0646}) {
    fs::permissions(victim_, fs::perms(mode));
    EXPECT_EQ(open_own_file(victim_), -1) << mode;
    EXPECT_EQ(errno, EPERM) << mode;
  }
}

}  // namespace
}  // namespace headrace::private_file_test
