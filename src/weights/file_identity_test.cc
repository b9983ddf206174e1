#include "weights/file_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace::file_identity_test {
namespace {

namespace fs = std::filesystem;

class FileIdentity : public testing::Test {
 protected:
  FileIdentity() { fs::create_directories(folder_); }
  ~FileIdentity() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "file_identity_test";
};

TEST_F(FileIdentity, AFileThatWasChangedHasAnother) {
  const std::string path = write("file", "abc");
  const auto time = fs::last_write_time(path);
  const std::string before = file_identity(path);
  EXPECT_EQ(file_identity(path), before);
  ::usleep(20'000);  // a kernel's clock of files may tick at 100 Hz
  write("file", "abd");
  fs::last_write_time(path, time);  // as rsync and cp -p do
  EXPECT_NE(file_identity(path), before);
  EXPECT_EQ(file_identity((folder_ / "none").string()), "");
}

TEST_F(FileIdentity, ASampleIsOfContentAlone) {
  std::string bytes(3 << 20, 'a');
  const std::string one = write("one", bytes), same = write("same", bytes);
  EXPECT_EQ(files_sample({one}), files_sample({same}));
  EXPECT_EQ(files_sample({one, same}), files_sample({same, one}));
  EXPECT_NE(files_sample({one, same}), files_sample({one}));
  for (const size_t at : {size_t{0}, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] = 'b';
    EXPECT_NE(files_sample({write("other", other)}), files_sample({one})) << at;
  }
  EXPECT_NE(files_sample({write("longer", bytes + "a")}), files_sample({one}));
  std::string header = bytes;  // as a rotation's base is, in a file of 3 MB
  header[40'000] = 'b';
  EXPECT_NE(files_sample({write("header", header)}), files_sample({one}));
  std::string half = bytes;  // as weights that were trained on are
  std::fill(half.begin() + (1 << 20), half.begin() + (2 << 20), 'b');
  EXPECT_NE(files_sample({write("half", half)}), files_sample({one}));
}

}  // namespace
}  // namespace headrace::file_identity_test
